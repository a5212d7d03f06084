#pragma once

#include <string>
#include <utility>

#include "parallel/comm/communicator.h"
#include "parallel/mesh.h"

namespace equipoise::testing {

// One rank of a mesh whose other ranks are not there: every operation is done at once. Reductions
// leave this rank's values, the others' numbers are equal to its own and their texts empty, and
// what is received is whatever was in memory. For counting what a rank does, not for results.
class LoneRank : public Communicator {
 public:
  LoneRank(const Mesh& mesh, int rank);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  Work AllReduce(at::Tensor& tensor, ReduceOp op) override;
  Work AllGather(at::Tensor& output, const at::Tensor& input) override;
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Work Broadcast(at::Tensor& tensor, int root) override;
  Work Send(const at::Tensor& tensor, int peer) override;
  Work Recv(at::Tensor& tensor, int peer) override;
  // The group along the axis of that name; for any other name this rank alone.
  std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) override;

 private:
  LoneRank(Mesh mesh, std::string name, int rank, int size)
      : mesh_(std::move(mesh)), name_(std::move(name)), rank_(rank), size_(size) {}

  Mesh mesh_;
  std::string name_ = "world";
  int rank_, size_;
};

}  // namespace equipoise::testing
