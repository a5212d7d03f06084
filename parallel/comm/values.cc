#include "parallel/comm/values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

namespace equipoise {

template <class T>
std::vector<T> AllReduceValues(Communicator& group, const std::vector<T>& values, ReduceOp op) {
  at::Tensor tensor = at::tensor(values);
  group.AllReduce(tensor, op).Wait();
  const T* data = tensor.const_data_ptr<T>();
  return {data, data + tensor.numel()};
}

template <class T>
std::vector<std::vector<T>> GatherValues(Communicator& group, const std::vector<T>& mine) {
  const at::Tensor input = at::tensor(mine);
  at::Tensor all = at::empty({group.size() * input.numel()}, input.options());
  group.AllGather(all, input).Wait();
  const T* data = all.const_data_ptr<T>();
  std::vector<std::vector<T>> ranks;
  ranks.reserve(static_cast<size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank, data += mine.size()) {
    ranks.emplace_back(data, data + mine.size());
  }
  return ranks;
}

bool AnyRank(Communicator& group, bool mine) {
  return AllReduceValue<int64_t>(group, mine ? 1 : 0, ReduceOp::kMax) != 0;
}

template std::vector<int64_t> AllReduceValues(Communicator&, const std::vector<int64_t>&, ReduceOp);
template std::vector<double> AllReduceValues(Communicator&, const std::vector<double>&, ReduceOp);
template std::vector<std::vector<int64_t>> GatherValues(Communicator&, const std::vector<int64_t>&);
template std::vector<std::vector<double>> GatherValues(Communicator&, const std::vector<double>&);

}  // namespace equipoise
