#include "models/ops/vocabulary.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sum.h>

#include "models/ops/matrix_product.h"
#include "models/ops/record.h"

namespace equipoise::ops {

LocalIds IdsOfPart(const at::Tensor& ids, const Parameter& weight) {
  LocalIds local;
  local.ids = ids.sub(weight.part.begin);
  local.elsewhere = local.ids.lt(0).logical_or_(local.ids.ge(weight.shape[0]));
  local.ids.masked_fill_(local.elsewhere, 0);
  return local;
}

at::Tensor VocabularyLogits(const at::Tensor& x, const Parameter& weight, Communicator* group) {
  const BelowAutograd guard;
  const at::Tensor local = MatrixProduct(x, weight.value.t());
  if (group == nullptr) return local.to(at::kFloat);
  // The first ranks may have one row more than the others, whose last column is then padding.
  const int64_t ranks = group->size(), whole = weight.part.whole;
  const int64_t rows = x.size(0), columns = (whole + ranks - 1) / ranks;
  const at::Tensor padded = at::constant_pad_nd(local, {0, columns - local.size(1)}).contiguous();
  at::Tensor all = at::empty({ranks, rows, columns}, padded.options());
  group->AllGather(all, padded).WaitOnStream();
  at::Tensor logits = at::empty({rows, whole}, padded.options().dtype(at::kFloat));
  for (int64_t rank = 0, begin = 0; rank < ranks; ++rank) {
    const int64_t size = whole / ranks + (rank < whole % ranks ? 1 : 0);
    logits.narrow(1, begin, size).copy_(all.select(0, rank).narrow(1, 0, size));
    begin += size;
  }
  return logits;
}

at::Tensor VocabularyArgmax(const at::Tensor& x, const Parameter& weight, Communicator* group) {
  const BelowAutograd guard;
  auto [most, column] = at::max(MatrixProduct(x, weight.value.t()), 1);
  if (group == nullptr) return column;
  const at::Tensor mine = most.to(at::kFloat);
  at::Tensor all = mine.clone();
  group->AllReduce(all, ReduceOp::kMax).WaitOnStream();
  // A row of NaN is nobody's: the last column.
  column.add_(weight.part.begin).masked_fill_(mine.ne(all), weight.part.whole - 1);
  group->AllReduce(column, ReduceOp::kMin).WaitOnStream();
  return column;
}

at::Tensor SoftmaxOverRanks(at::Tensor& logits, const LocalIds& ids, Communicator& group) {
  at::Tensor max = logits.amax(1, /*keepdim=*/true);
  group.AllReduce(max, ReduceOp::kMax).WaitOnStream();
  logits.sub_(max);
  at::Tensor sums = at::empty({2, logits.size(0)}, logits.options());  // exponentials, the target's
  at::Tensor total = sums[0], target = sums[1];
  target.copy_(logits.gather(1, ids.ids.unsqueeze(1)).squeeze(1));
  target.masked_fill_(ids.elsewhere, 0);
  logits.exp_();
  at::sum_out(total, logits, {1});
  group.AllReduce(sums, ReduceOp::kSum).WaitOnStream();
  logits.div_(total.unsqueeze(1));
  return total.to(at::kDouble).log_().sub_(target);
}

}  // namespace equipoise::ops
