#pragma once

#include <cstdint>
#include <functional>

namespace equipoise {

// Calls body(from, to) for ranges that make up [begin, end), in no more ranges than `grain` goes
// into their number, rounded up, in LibTorch's threads of an operation (at::set_num_threads()), the
// calling one among them; in this thread alone within such a body. at::parallel_for() does the same
// only in a file that is compiled with OpenMP, and is silently one thread in all others: it is
// called nowhere else.
void IntraOpFor(int64_t begin, int64_t end, int64_t grain,
                const std::function<void(int64_t, int64_t)>& body);

}  // namespace equipoise
