// The kernels of kernel_list.h.

#include "models/ops/kernels/kernel_list.h"
#include "parallel/kernels/kernel_entry.cuh"

namespace equipoise::kernels {

EQUIPOISE_ROW_KERNELS(EQUIPOISE_KERNEL_ENTRY)

}  // namespace equipoise::kernels
