#include "models/ops/embedding.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>

#include "configs/base/error.h"
#include "models/ops/record.h"
#include "models/ops/shared_rows.h"
#include "models/ops/vocabulary.h"

namespace equipoise::ops {
namespace {

// The rows of `ids`, with zeros for those that other ranks hold.
at::Tensor OwnRows(const at::Tensor& ids, const Parameter& weight) {
  const LocalIds local = IdsOfPart(ids, weight);
  at::Tensor rows = weight.value.index_select(0, local.ids);
  rows.masked_fill_(local.elsewhere.unsqueeze(1), 0);
  return rows;
}

// Rows of the whole weight; an all-reduce brings those that other ranks hold.
at::Tensor Rows(const at::Tensor& ids, const Parameter& weight, Communicator* group) {
  if (group == nullptr) return weight.value.index_select(0, ids);
  at::Tensor rows = OwnRows(ids, weight);
  group->AllReduce(rows, ReduceOp::kSum).WaitOnStream();
  return rows;
}

// This rank's part of the sum of `rows`, with the features in their places: all ranks have the
// same, and one adds them.
at::Tensor ScatteredRows(at::Tensor rows, const at::Tensor& features, const at::Tensor& positions,
                         Communicator& group) {
  if (features.defined() && group.rank() == 0) rows.index_copy_(0, positions, features);
  if (features.defined() && group.rank() != 0) rows.index_fill_(0, positions, 0);
  return Scattered(rows, group);
}

struct EmbeddingNode : torch::autograd::Node {
  Parameter* weight = nullptr;
  int64_t padding_id = -1;
  Communicator* rows_group = nullptr;  // ranks that share out the rows
  at::Tensor ids, positions;           // positions is undefined where nothing was spliced in

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g =
        rows_group == nullptr ? gradients[0] : Gathered(gradients[0], ids.size(0), *rows_group);
    if (weight->trainable) AddWeightGradient(g);
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {g.index_select(0, positions)};
  }
  void release_variables() override {
    ids.reset();
    positions.reset();
  }
  std::string name() const override { return "Embedding(" + weight->name + ")"; }

 private:
  void AddWeightGradient(const at::Tensor& g) const {
    at::Tensor rows = g.to(at::kFloat);
    if (positions.defined()) {
      if (rows.is_same(g)) rows = g.clone();
      rows.index_fill_(0, positions, 0);
    }
    const int64_t padding = padding_id < 0 ? -1 : padding_id - weight->part.begin;
    const bool has_padding = 0 <= padding && padding < weight->shape[0];
    const at::Tensor before = has_padding ? weight->gradient[padding].clone() : at::Tensor();
    AddRows(rows);
    // The head's part of a tied weight's gradient is kept.
    if (has_padding) weight->gradient[padding].copy_(before);
  }
  void AddRows(const at::Tensor& rows) const {
    if (!weight->part.split()) {
      weight->gradient.index_add_(0, ids, rows);
      return;
    }
    const LocalIds local = IdsOfPart(ids, *weight);
    // Zeros for tokens of other ranks: to pick this rank's own, the host would wait for the GPU.
    weight->gradient.index_add_(0, local.ids, rows.masked_fill(local.elsewhere.unsqueeze(1), 0));
  }
};

struct ClassAndPositionsNode : torch::autograd::Node {
  Parameter* token = nullptr;
  Parameter* positions = nullptr;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    const int64_t first = token == nullptr ? 0 : 1;  // row of the first patch
    if (token != nullptr && token->trainable) {
      token->AddGradient(g.select(1, 0).sum(0, /*keepdim=*/false, at::kFloat));
    }
    if (positions->trainable) {
      positions->AddGradient(g.sum(0, /*keepdim=*/false, at::kFloat));
    }
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {g.narrow(1, first, g.size(1) - first)};
  }
  std::string name() const override { return "ClassAndPositions(" + positions->name + ")"; }
};

struct PutVectorNode : torch::autograd::Node {
  Parameter* vector = nullptr;
  at::Tensor places;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    if (vector->trainable && places.size(0) > 0) {
      vector->AddGradient(g.index_select(0, places).sum(0, /*keepdim=*/false, at::kFloat));
    }
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {g.index_fill(0, places, 0)};
  }
  void release_variables() override { places.reset(); }
  std::string name() const override { return "PutVector(" + vector->name + ")"; }
};

}  // namespace

at::Tensor EmbedAndSplice(const at::Tensor& ids, const at::Tensor& features,
                          const at::Tensor& positions, Parameter& weight,
                          const EmbeddingOptions& options) {
  const bool needs_node = NeedsNode({&features}, {&weight});
  const BelowAutograd guard;
  EQUIPOISE_CHECK(!features.defined() || positions.size(0) == features.size(0), positions.size(0),
                  " placeholder tokens for ", features.size(0), " image features");
  at::Tensor y;
  if (options.shares_rows) {
    y = ScatteredRows(OwnRows(ids, weight), features, positions, *options.group);
  } else {
    y = Rows(ids, weight, options.group);
    if (features.defined()) y.index_copy_(0, positions, features);
  }
  if (!needs_node) return y;
  auto node = std::make_shared<EmbeddingNode>();
  node->weight = &weight;
  node->padding_id = options.padding_id;
  if (options.shares_rows) node->rows_group = options.group;
  node->ids = ids;
  if (features.defined()) node->positions = positions;
  Record(y, node, {&features});
  return y;
}

at::Tensor AddClassAndPositions(const at::Tensor& patches, Parameter* token, Parameter& positions) {
  const bool needs_node = token == nullptr ? NeedsNode({&patches}, {&positions})
                                           : NeedsNode({&patches}, {token, &positions});
  const BelowAutograd guard;
  const int64_t tiles = patches.size(0), count = patches.size(1), hidden = patches.size(2);
  const int64_t first = token == nullptr ? 0 : 1;
  const at::Tensor added = positions.value.view({1, count + first, hidden});
  at::Tensor y = at::empty({tiles, count + first, hidden}, patches.options());
  if (token != nullptr) {
    y.narrow(1, 0, 1).copy_(token->value.view({1, 1, hidden}).add(added.narrow(1, 0, 1)));
  }
  at::Tensor rest = y.narrow(1, first, count);
  at::add_out(rest, patches, added.narrow(1, first, count));
  if (!needs_node) return y;
  auto node = std::make_shared<ClassAndPositionsNode>();
  node->token = token;
  node->positions = &positions;
  Record(y, node, {&patches});
  return y;
}

at::Tensor PutVector(const at::Tensor& x, const at::Tensor& places, Parameter& vector) {
  const bool needs_node = NeedsNode({&x}, {&vector});
  const BelowAutograd guard;
  at::Tensor y = x.clone();
  if (places.size(0) > 0) {
    y.index_copy_(0, places, vector.value.unsqueeze(0).expand({places.size(0), -1}));
  }
  if (!needs_node) return y;
  auto node = std::make_shared<PutVectorNode>();
  node->vector = &vector;
  node->places = places;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
