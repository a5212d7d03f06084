#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace equipoise {

// The input of a stage from what the stages before it send, ascending: their rows, [rows, width]
// each, one after the other. Undefined where there are none; the tensor itself where it is one.
at::Tensor JoinRows(const std::vector<at::Tensor>& inputs);

// The gradient of each of those inputs, as views of the gradient of the joined rows.
// `shapes`: of the inputs. REQUIRES: they have as many rows in all.
std::vector<at::Tensor> SplitRows(const at::Tensor& gradient,
                                  const std::vector<std::vector<int64_t>>& shapes);

}  // namespace equipoise
