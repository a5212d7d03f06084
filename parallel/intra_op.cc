#include "parallel/intra_op.h"

#include <ATen/Parallel.h>

#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for() would be one thread: compile this file with OpenMP"
#endif

namespace equipoise {

void IntraOpFor(int64_t begin, int64_t end, int64_t grain,
                const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(begin, end, grain, body);
}

}  // namespace equipoise
