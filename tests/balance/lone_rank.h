#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/comm/single_communicator.h"

namespace equipoise::testing {

// A group of `size` tensor ranks of which only the first exists; it notes what it exchanges. What
// would come from the others is what it has itself, or nothing.
class LoneTensorRank : public SingleCommunicator {
 public:
  using Bytes = std::vector<double>;

  explicit LoneTensorRank(int size) : size_(size) {}
  int size() const override { return size_; }
  Work AllReduce(at::Tensor& tensor, ReduceOp /*op*/) override {
    sums_.push_back(static_cast<double>(tensor.nbytes()));
    return {};
  }
  Work AllGather(at::Tensor& output, const at::Tensor& input) override {
    exchanges_.push_back(static_cast<double>(output.nbytes()));
    for (int rank = 0; rank < size_; ++rank) {
      output.narrow(0, rank * input.size(0), input.size(0)).copy_(input);
    }
    return {};
  }
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp /*op*/) override {
    exchanges_.push_back(static_cast<double>(input.nbytes()));
    output.copy_(input.narrow(0, 0, output.size(0)));
    return {};
  }
  // Bytes, in ascending order, since the last call: of each all-reduce; of each gather of rows and
  // each scatter, over all ranks.
  Bytes TakeSums() { return Sorted(std::exchange(sums_, {})); }
  Bytes TakeExchanges() { return Sorted(std::exchange(exchanges_, {})); }

 private:
  static Bytes Sorted(Bytes bytes) {
    std::sort(bytes.begin(), bytes.end());
    return bytes;
  }

  int size_;
  Bytes sums_, exchanges_;
};

}  // namespace equipoise::testing
