// The kernels of optimizer_kernel_list.h.

#include "parallel/kernels/kernel_entry.cuh"
#include "parallel/zero/kernels/optimizer_kernel_list.h"

namespace equipoise::kernels {

EQUIPOISE_OPTIMIZER_KERNELS(EQUIPOISE_KERNEL_ENTRY)

}  // namespace equipoise::kernels
