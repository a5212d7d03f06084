#pragma once

#include <cstdint>
#include <functional>

namespace equipoise {

// Calls work(i) once for each i in [0, count), in `threads` threads, the calling one among them;
// indices are assigned in ascending order. After an exception no index is assigned any more, and
// the first exception is rethrown here.
void ParallelFor(int64_t count, int64_t threads, const std::function<void(int64_t)>& work);

}  // namespace equipoise
