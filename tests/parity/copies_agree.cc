#include "tests/parity/copies_agree.h"

#include <ATen/ATen.h>

#include <vector>

namespace equipoise::testing {

bool CopiesAgree(ParallelModel& model) {
  if (model.plan().tensor() == 1 || model.plan().IsSharded(ShardedState::kParameters)) return true;
  model.parameters().compute();
  std::vector<at::Tensor> copies;
  for (const Parameter* parameter : model.parameters().parameters()) {
    if (parameter->part.split() || parameter->packs) continue;
    copies.push_back(parameter->value.reshape({-1}).to(at::kCPU, at::kFloat));
  }
  if (copies.empty()) return true;
  const at::Tensor mine = at::cat(copies);
  at::Tensor least = mine.clone(), most = mine.clone();
  Communicator& group = model.groups().along(Axis::kTensor);
  group.AllReduce(least, ReduceOp::kMin).Wait();
  group.AllReduce(most, ReduceOp::kMax).Wait();
  return least.equal(mine) && most.equal(mine);
}

}  // namespace equipoise::testing
