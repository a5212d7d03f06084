#pragma once

#include <cstdint>
#include <functional>

namespace equipoise {

// Calls work(i) once for each i in [0, count), in `threads` threads, this one among them; indices
// are handed out in ascending order. An exception stops the handing out and is thrown again here.
void ParallelFor(int64_t count, int64_t threads, const std::function<void(int64_t)>& work);

}  // namespace equipoise
