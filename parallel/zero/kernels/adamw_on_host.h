#pragma once

#include <cstdint>

#include "parallel/kernels/bf16.h"
#include "parallel/zero/kernels/adamw_rows.h"
#include "parallel/zero/kernels/moment_codes.h"

namespace equipoise::kernels {

// AdamW's row function on moments in 8 bits: a block's become fp32, are updated as any, and are
// rounded again. `rows` has no moments of its own, and chunks that begin at whole blocks of them.
template <class Weight, bool kHasMaster = true>
struct AdamWOnCodes {
  AdamWRow<Weight, float, kHasMaster> rows;
  MomentCodes average, square;
};

// Rows [begin, end) of AdamWRow or AdamWOnCodes on this thread, by the vector instructions that the
// processor has. The bits do not depend on them. For Weight and Moment fp32 or bf16.
template <class Row>
void RunOnHost(const Row& row, int64_t begin, int64_t end);

extern template void RunOnHost(const AdamWRow<float, float>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWRow<float, Bf16>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWRow<Bf16, float>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWRow<Bf16, Bf16>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWOnCodes<float>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWOnCodes<Bf16>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWRow<Bf16, float, false>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWRow<Bf16, Bf16, false>&, int64_t, int64_t);
extern template void RunOnHost(const AdamWOnCodes<Bf16, false>&, int64_t, int64_t);

}  // namespace equipoise::kernels
