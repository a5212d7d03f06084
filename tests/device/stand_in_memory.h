#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace equipoise::testing {

// For operations that the stand-in of GPUs runs itself (gpu_stand_in.cc).

// A tensor of the stand-in as one of the host, over the same memory: no copy that waits.
at::Tensor StandInOnHost(const at::Tensor& tensor);
// A tensor of the stand-in with the numbers of one of the host.
at::Tensor ToStandIn(const at::Tensor& host, const at::TensorOptions& options);
// Tells what such an operation has used.
void ReportUses(const std::string& operation, at::TensorList reads, at::TensorList writes);

}  // namespace equipoise::testing
