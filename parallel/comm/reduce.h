#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Reduces `count` elements: out[i] = parts[0][i] op parts[1][i] op ..., in this order. fp32, bf16
// and fp16 are accumulated in fp32 and rounded once; fp64 and int64 in their own type. kMax and
// kMin of a NaN are NaN. `out` may be one of the parts. REQUIRES: CanReduce(dtype), at least one
// part.
void Reduce(void* out, const std::vector<const void*>& parts, int64_t count, at::ScalarType dtype,
            ReduceOp op);

// Whether Reduce() supports the dtype.
bool CanReduce(at::ScalarType dtype);

}  // namespace equipoise
