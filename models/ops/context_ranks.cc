#include "models/ops/context_ranks.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <numeric>

#include "configs/base/error.h"
#include "models/ops/record.h"
#include "models/ops/shared_rows.h"
#include "models/spec/tensor_parallel.h"
#include "parallel/comm/all_to_all.h"

namespace equipoise::ops {
namespace {

int64_t WidthOf(const ColumnRanges& ranges) {
  int64_t width = 0;
  for (const Columns& range : ranges) width += range.size;
  return width;
}

bool Overlap(const std::vector<ColumnRanges>& of_ranks, int64_t width) {
  int64_t all = 0;
  for (const ColumnRanges& ranges : of_ranks) all += WidthOf(ranges);
  return all > width;
}

// [share, width] -> [rows, own]
at::Tensor ToColumns(const at::Tensor& part, int64_t rows,
                     const std::vector<ColumnRanges>& of_ranks, Communicator& group) {
  EQUIPOISE_CHECK(part.dim() == 2 && part.size(0) == RowShare(rows, group.size()), part.sizes(),
                  " of ", rows, " rows");
  const int64_t share = part.size(0);
  std::vector<at::Tensor> inputs, outputs;
  for (const ColumnRanges& ranges : of_ranks) {
    std::vector<at::Tensor> columns;
    for (const Columns& range : ranges) columns.push_back(part.narrow(1, range.begin, range.size));
    inputs.push_back(at::cat(columns, 1));
  }
  const int64_t own = WidthOf(of_ranks[static_cast<size_t>(group.rank())]);
  const at::Tensor all = at::empty({group.size() * share, own}, part.options());
  for (int rank = 0; rank < group.size(); ++rank)
    outputs.push_back(all.narrow(0, rank * share, share));
  AllToAll(group, outputs, inputs);
  return all.narrow(0, 0, rows);
}

// [rows, own] -> [share, width]; sums what several ranks have.
at::Tensor ToRows(const at::Tensor& x, int64_t width, const std::vector<ColumnRanges>& of_ranks,
                  Communicator& group) {
  const int64_t share = RowShare(x.size(0), group.size());
  const at::Tensor all = PadToRows(x, group.size() * share);
  std::vector<at::Tensor> inputs, outputs;
  for (int rank = 0; rank < group.size(); ++rank) {
    inputs.push_back(all.narrow(0, rank * share, share));
    outputs.push_back(
        at::empty({share, WidthOf(of_ranks[static_cast<size_t>(rank)])}, x.options()));
  }
  AllToAll(group, outputs, inputs);
  const bool sums = Overlap(of_ranks, width);
  const at::Tensor result = sums ? at::zeros({share, width}, x.options().dtype(at::kFloat))
                                 : at::empty({share, width}, x.options());
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    int64_t begin = 0;
    for (const Columns& range : of_ranks[rank]) {
      const at::Tensor from = outputs[rank].narrow(1, begin, range.size);
      at::Tensor to = result.narrow(1, range.begin, range.size);
      if (sums) {
        to.add_(from);
      } else {
        to.copy_(from);
      }
      begin += range.size;
    }
  }
  return result.to(x.scalar_type());
}

// Slices of x of so many rows each, one behind the other.
std::vector<at::Tensor> Slices(const at::Tensor& x, const std::vector<int64_t>& rows) {
  std::vector<at::Tensor> slices;
  int64_t begin = 0;
  for (const int64_t count : rows) {
    slices.push_back(x.narrow(0, begin, count));
    begin += count;
  }
  return slices;
}

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

struct RowsToColumnsNode : torch::autograd::Node {
  Communicator* group = nullptr;
  std::vector<ColumnRanges> of_ranks;
  int64_t width = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {ToRows(gradients[0], width, of_ranks, *group)};
  }
  std::string name() const override { return "RowsToColumns"; }
};

struct ColumnsToRowsNode : torch::autograd::Node {
  Communicator* group = nullptr;
  std::vector<ColumnRanges> of_ranks;
  int64_t rows = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {ToColumns(gradients[0], rows, of_ranks, *group)};
  }
  std::string name() const override { return "ColumnsToRows"; }
};

struct SendRowsNode : torch::autograd::Node {
  Communicator* group = nullptr;
  std::vector<int64_t> sent, received;
  int64_t rows = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = gradients[0].contiguous();
    at::Tensor all = at::zeros({rows, g.size(1)}, g.options());
    std::vector<at::Tensor> outputs = Slices(all, sent);
    AllToAll(*group, outputs, Slices(g, received));
    return {all};
  }
  std::string name() const override { return "SendRows"; }
};

}  // namespace

at::Tensor RowsToColumns(const at::Tensor& part, int64_t rows,
                         const std::vector<ColumnRanges>& of_ranks, Communicator& group) {
  const bool needs_node = NeedsGradient(part);
  const BelowAutograd guard;
  at::Tensor y = ToColumns(part, rows, of_ranks, group);
  if (!needs_node) return y;
  auto node = std::make_shared<RowsToColumnsNode>();
  node->group = &group;
  node->of_ranks = of_ranks;
  node->width = part.size(1);
  Record(y, node, {&part});
  return y;
}

at::Tensor ColumnsToRows(const at::Tensor& x, const std::vector<ColumnRanges>& of_ranks,
                         Communicator& group) {
  const bool needs_node = NeedsGradient(x);
  const BelowAutograd guard;
  int64_t width = 0;
  for (const ColumnRanges& ranges : of_ranks) width += WidthOf(ranges);
  at::Tensor y = ToRows(x, width, of_ranks, group);
  if (!needs_node) return y;
  auto node = std::make_shared<ColumnsToRowsNode>();
  node->group = &group;
  node->of_ranks = of_ranks;
  node->rows = x.size(0);
  Record(y, node, {&x});
  return y;
}

at::Tensor SendRows(const at::Tensor& x, const std::vector<int64_t>& sent,
                    const std::vector<int64_t>& received, Communicator& group) {
  const bool needs_node = NeedsGradient(x);
  const BelowAutograd guard;
  EQUIPOISE_CHECK(Sum(sent) <= x.size(0), Sum(sent), " rows of ", x.size(0));
  at::Tensor y = at::empty({Sum(received), x.size(1)}, x.options());
  std::vector<at::Tensor> outputs = Slices(y, received);
  AllToAll(group, outputs, Slices(x.contiguous(), sent));
  if (!needs_node) return y;
  auto node = std::make_shared<SendRowsNode>();
  node->group = &group;
  node->sent = sent;
  node->received = received;
  node->rows = x.size(0);
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
