#include "parallel/comm/all_to_all.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/transfer_group.h"

namespace equipoise {

void AllToAll(Communicator& group, std::vector<at::Tensor>& outputs,
              const std::vector<at::Tensor>& inputs) {
  const auto ranks = static_cast<size_t>(group.size());
  EQUIPOISE_CHECK(inputs.size() == ranks && outputs.size() == ranks, inputs.size(), " inputs and ",
                  outputs.size(), " outputs of ", ranks, " ranks");
  const auto self = static_cast<size_t>(group.rank());
  std::vector<Work> works;
  {
    const TransferGroup joined(group);
    // Each rank begins with its neighbour, so that not all send to one.
    for (size_t i = 1; i < ranks; ++i) {
      const size_t from = (self + ranks - i) % ranks, to = (self + i) % ranks;
      if (outputs[from].numel() > 0)
        works.push_back(group.Recv(outputs[from], static_cast<int>(from)));
      if (inputs[to].numel() > 0) works.push_back(group.Send(inputs[to], static_cast<int>(to)));
    }
  }
  if (inputs[self].numel() > 0) outputs[self].copy_(inputs[self]);
  for (Work& work : works) work.WaitOnStream();
}

std::vector<std::pair<int, int>> AllPairs(int ranks) {
  std::vector<std::pair<int, int>> pairs;
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) pairs.emplace_back(a, b);
  }
  return pairs;
}

}  // namespace equipoise
