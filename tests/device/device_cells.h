#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/comm/nccl_api.h"
#include "tests/parity/cell.h"

namespace equipoise::testing {

// Rank r, a thread, computes on GPU r mod `gpus`; tensors between ranks are staged with the
// functions of `cuda(gpu)`.
CellDevices StagedGpus(int gpus, std::function<CudaApi(int gpu)> cuda);

// Models, precisions and meshes of one and two ranks. Without `tensor`, none with tensor ranks:
// they exchange in backward, which one thread runs for all ranks that share a GPU.
std::vector<Cell> DeviceCells(bool tensor);

// Checks loss, every gradient, gradient norms and the weights after AdamW's steps beside the same
// cell on the CPU, and prints the errors as a row of the table that scripts/parity makes.
// `other_sums`: a device whose kernels add in other orders than the CPU's, as real GPUs. There an
// error may also be what rounding makes, measured on the CPU, times 8.
void CheckCell(const Cell& cell, const CellDevices& devices, bool other_sums = false);

}  // namespace equipoise::testing
