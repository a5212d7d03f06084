#pragma once

#include <cstdint>

#include "parallel/kernels/bf16.h"
#include "parallel/zero/kernels/adamw_rows.h"

namespace equipoise::kernels {

// Rows [begin, end) of AdamW's row function on this thread, by the vector instructions that the
// processor has. The bits do not depend on them. For Weight and Moment fp32 or bf16.
template <class Weight, class Moment>
void RunOnHost(const AdamWRow<Weight, Moment>& row, int64_t begin, int64_t end);

extern template void RunOnHost(const AdamWRow<float, float>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWRow<float, Bf16>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWRow<Bf16, float>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWRow<Bf16, Bf16>&, int64_t, int64_t);

}  // namespace equipoise::kernels
