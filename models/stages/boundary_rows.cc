#include "models/stages/boundary_rows.h"

#include <ATen/ops/cat.h>

#include "configs/base/error.h"

namespace equipoise {

at::Tensor JoinRows(const std::vector<at::Tensor>& inputs) {
  if (inputs.empty()) return {};
  return inputs.size() == 1 ? inputs.front() : at::cat(inputs, /*dim=*/0);
}

std::vector<at::Tensor> SplitRows(const at::Tensor& gradient,
                                  const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<at::Tensor> parts;
  int64_t row = 0;
  for (const std::vector<int64_t>& shape : shapes) {
    parts.push_back(gradient.narrow(/*dim=*/0, row, shape.front()));
    row += shape.front();
  }
  EQUIPOISE_CHECK(parts.empty() || row == gradient.size(0), row,
                  " rows of stages before, gradient of ", gradient.size(0));
  return parts;
}

}  // namespace equipoise
