#include "tests/parity/copies_agree.h"

#include <ATen/ATen.h>

#include <vector>

namespace equipoise::testing {

namespace {

bool SameBitsOn(Communicator& group, const at::Tensor& mine) {
  at::Tensor least = mine.clone(), most = mine.clone();
  group.AllReduce(least, ReduceOp::kMin).Wait();
  group.AllReduce(most, ReduceOp::kMax).Wait();
  return least.equal(mine) && most.equal(mine);
}

bool ShardCopiesAgree(ParallelModel& model) {
  Communicator* copies = model.groups().shard_copies();
  return copies == nullptr ||
         SameBitsOn(*copies, model.parameters().compute().to(at::kCPU, at::kFloat));
}

bool TensorCopiesAgree(ParallelModel& model) {
  if (model.plan().tensor() == 1 || model.plan().IsSharded(ShardedState::kParameters)) return true;
  std::vector<at::Tensor> copies;
  for (const Parameter* parameter : model.parameters().parameters()) {
    if (parameter->part.split() || parameter->packs) continue;
    copies.push_back(parameter->value.reshape({-1}).to(at::kCPU, at::kFloat));
  }
  if (copies.empty()) return true;
  return SameBitsOn(model.groups().along(Axis::kTensor), at::cat(copies));
}

}  // namespace

bool CopiesAgree(ParallelModel& model) {
  model.parameters().compute();
  const bool of_shards = ShardCopiesAgree(model);
  return TensorCopiesAgree(model) && of_shards;
}

}  // namespace equipoise::testing
