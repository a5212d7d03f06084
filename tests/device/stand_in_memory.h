#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace equipoise::testing {

// For operations that the stand-in of GPUs runs itself (gpu_stand_in.cc).

// A tensor of the stand-in as one of the host, over the same memory: no copy that waits.
at::Tensor StandInOnHost(const at::Tensor& tensor);
// A tensor of the stand-in with the numbers of one of the host.
at::Tensor ToStandIn(const at::Tensor& host, const at::TensorOptions& options);
// Tells what such an operation has used.
void ReportUses(const std::string& operation, at::TensorList reads, at::TensorList writes);

// Runs an operation by its kernel for CPUs, on tensors of the host over the same memory.
void RunOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace equipoise::testing
