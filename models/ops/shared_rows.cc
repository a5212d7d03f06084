#include "models/ops/shared_rows.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "models/ops/record.h"
#include "models/spec/tensor_parallel.h"

namespace equipoise::ops {
namespace {

struct GatherRowsNode : torch::autograd::Node {
  Communicator* group = nullptr;
  BesideSum beside;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {Scattered(gradients[0], *group, beside)};
  }
  std::string name() const override { return "GatherRows"; }
};

struct GatherWholeRowsNode : torch::autograd::Node {
  int64_t first = 0, share = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    const int64_t begin = std::min(first, g.size(0));
    return {PadToRows(g.narrow(0, begin, std::min(share, g.size(0) - begin)), share)};
  }
  std::string name() const override { return "GatherWholeRows"; }
};

struct ScatterRowsNode : torch::autograd::Node {
  Parameter* bias = nullptr;
  Communicator* group = nullptr;
  int64_t rows = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    if (bias != nullptr && bias->trainable) {
      bias->AddGradient(g.sum(0, /*keepdim=*/false, at::kFloat));
    }
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {Gathered(g, rows, *group)};
  }
  std::string name() const override { return "ScatterRows"; }
};

}  // namespace

at::Tensor PadToRows(const at::Tensor& x, int64_t rows) {
  if (x.size(0) == rows) return x.contiguous();
  return at::constant_pad_nd(x, {0, 0, 0, rows - x.size(0)}).contiguous();
}

namespace {

// The rows of all ranks, on their way, with what pads them.
struct Gathering {
  at::Tensor all;
  Work work;
};
Gathering StartGather(const at::Tensor& part, int64_t rows, Communicator& group) {
  EQUIPOISE_CHECK(part.dim() == 2 && part.size(0) == RowShare(rows, group.size()), part.sizes(),
                  " of ", rows, " rows");
  const at::Tensor mine = part.contiguous();
  at::Tensor all = at::empty({group.size() * part.size(0), part.size(1)}, part.options());
  Work work = group.AllGather(all, mine);
  return {std::move(all), std::move(work)};
}

}  // namespace

at::Tensor Gathered(const at::Tensor& part, int64_t rows, Communicator& group) {
  Gathering gathering = StartGather(part, rows, group);
  gathering.work.WaitOnStream();
  return gathering.all.narrow(0, 0, rows);
}

at::Tensor Scattered(const at::Tensor& x, Communicator& group, const BesideSum& beside) {
  const int64_t share = RowShare(x.size(0), group.size());
  const at::Tensor all = PadToRows(x, group.size() * share);
  at::Tensor mine = at::empty({share, x.size(1)}, x.options());
  Work sum = group.ReduceScatter(mine, all, ReduceOp::kSum);
  RunBeside(beside);
  sum.WaitOnStream();
  return mine;
}

at::Tensor GatherRows(const at::Tensor& part, int64_t rows, Communicator& group,
                      const BesideSum& beside) {
  const bool needs_node = NeedsGradient(part);
  const BelowAutograd guard;
  at::Tensor y = Gathered(part, rows, group);
  if (!needs_node) return y;
  auto node = std::make_shared<GatherRowsNode>();
  node->group = &group;
  node->beside = beside;
  Record(y, node, {&part});
  return y;
}

at::Tensor GatherWholeRows(const at::Tensor& part, int64_t rows, Communicator& group) {
  const bool needs_node = NeedsGradient(part);
  const BelowAutograd guard;
  at::Tensor y = Gathered(part, rows, group);
  if (!needs_node) return y;
  auto node = std::make_shared<GatherWholeRowsNode>();
  node->share = part.size(0);
  node->first = group.rank() * node->share;
  Record(y, node, {&part});
  return y;
}

at::Tensor ScatterRows(const at::Tensor& x, Parameter* bias, Communicator& group) {
  const bool needs_node = NeedsNode({&x}, {bias});
  const BelowAutograd guard;
  at::Tensor y = Scattered(x, group);
  if (bias != nullptr) y.add_(bias->value);
  if (!needs_node) return y;
  auto node = std::make_shared<ScatterRowsNode>();
  node->bias = bias;
  node->group = &group;
  node->rows = x.size(0);
  Record(y, node, {&x});
  return y;
}

void SharedInput::Restore() {
  if (maker_ != nullptr) part_ = maker_->ResultAgain();
  maker_.reset();
}

void SharedInput::Start() {
  if (all_.defined()) return;
  Gathering gathering = StartGather(part_, rows_, group_);
  all_ = std::move(gathering.all);
  gather_ = std::move(gathering.work);
}

at::Tensor SharedInput::Take() {
  EQUIPOISE_CHECK(uses_ > 0, "an input that nothing keeps");
  Start();
  gather_.WaitOnStream();
  at::Tensor all = all_.narrow(0, 0, rows_);
  if (--uses_ == 0) {
    all_.reset();
    part_.reset();
  }
  return all;
}

}  // namespace equipoise::ops
