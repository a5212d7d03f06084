#include "models/ops/context_ranks.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "configs/base/error.h"
#include "models/ops/record.h"
#include "models/spec/tensor_parallel.h"
#include "parallel/comm/all_to_all.h"

namespace equipoise::ops {
namespace {

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

int64_t SizeOf(const Ranges& ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

// What lies within `limits` too.
Ranges Within(const Ranges& ranges, const Range& limits) {
  Ranges result;
  for (const Range& range : ranges) {
    const Range common = {std::max(range.begin, limits.begin), std::min(range.end, limits.end)};
    if (common.begin < common.end) result.push_back(common);
  }
  return result;
}

// What one rank has of another's rows, counted from the first of these.
Ranges RowsFrom(const AttentionParts& parts, int holder, int source, int64_t rows, int ranks) {
  const OwnRows own = RowsOf({.rank = source, .size = ranks}, rows);
  const Range limits = {own.begin, own.begin + own.size};
  if (parts.rows.empty()) return {{0, own.size}};
  Ranges common = Within(parts.rows[static_cast<size_t>(holder)], limits);
  for (Range& range : common) range = {range.begin - own.begin, range.end - own.begin};
  return common;
}

// Calls visit(piece of x, piece of packed [size of rows, size of columns]) for each of both ranges.
template <typename Visit>
void ForEachPiece(const at::Tensor& x, const Ranges& rows, const Ranges& columns,
                  const at::Tensor& packed, const Visit& visit) {
  int64_t row = 0;
  for (const Range& r : rows) {
    int64_t column = 0;
    for (const Range& c : columns) {
      visit(x.narrow(0, r.begin, r.size()).narrow(1, c.begin, c.size()),
            packed.narrow(0, row, r.size()).narrow(1, column, c.size()));
      column += c.size();
    }
    row += r.size();
  }
}

// Whether some elements are of several ranks.
bool Overlap(const AttentionParts& parts, int64_t rows, int64_t width) {
  int64_t all = 0;
  for (size_t rank = 0; rank < parts.columns.size(); ++rank) {
    all += SizeOf(parts.columns[rank]) * (parts.rows.empty() ? rows : SizeOf(parts.rows[rank]));
  }
  return all > rows * width;
}

// [share, width] -> [own rows, own columns]
at::Tensor ToColumns(const at::Tensor& part, int64_t rows, const AttentionParts& parts,
                     Communicator& group) {
  const int ranks = group.size(), self = group.rank();
  EQUIPOISE_CHECK(part.dim() == 2 && part.size(0) == RowShare(rows, ranks), part.sizes(), " of ",
                  rows, " rows");
  const auto columns = [&](int rank) { return parts.columns[static_cast<size_t>(rank)]; };
  std::vector<at::Tensor> inputs, outputs;
  std::vector<int64_t> received;
  for (int rank = 0; rank < ranks; ++rank) {
    const Ranges sent = RowsFrom(parts, rank, self, rows, ranks);
    inputs.push_back(at::empty({SizeOf(sent), SizeOf(columns(rank))}, part.options()));
    ForEachPiece(part, sent, columns(rank), inputs.back(),
                 [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
    received.push_back(SizeOf(RowsFrom(parts, self, rank, rows, ranks)));
  }
  at::Tensor all = at::empty({Sum(received), SizeOf(columns(self))}, part.options());
  outputs = Slices(all, received);
  AllToAll(group, outputs, inputs);
  return all;
}

// [own rows, own columns] -> [share, width]; sums what several ranks have.
at::Tensor ToRows(const at::Tensor& x, int64_t rows, int64_t width, const AttentionParts& parts,
                  Communicator& group) {
  const int ranks = group.size(), self = group.rank();
  std::vector<Ranges> received;
  std::vector<int64_t> sent;
  std::vector<at::Tensor> outputs;
  for (int rank = 0; rank < ranks; ++rank) {
    sent.push_back(SizeOf(RowsFrom(parts, self, rank, rows, ranks)));
    received.push_back(RowsFrom(parts, rank, self, rows, ranks));
    const int64_t columns = SizeOf(parts.columns[static_cast<size_t>(rank)]);
    outputs.push_back(at::empty({SizeOf(received.back()), columns}, x.options()));
  }
  AllToAll(group, outputs, Slices(x.contiguous(), sent));
  const OwnRows own = RowsOf({.rank = self, .size = ranks}, rows);
  const bool sums = Overlap(parts, rows, width);
  const at::Tensor result = sums ? at::zeros({own.share, width}, x.options().dtype(at::kFloat))
                                 : at::empty({own.share, width}, x.options());
  result.narrow(0, own.size, own.share - own.size).zero_();  // padding
  for (size_t rank = 0; rank < outputs.size(); ++rank) {
    ForEachPiece(result, received[rank], parts.columns[rank], outputs[rank],
                 [&](const at::Tensor& to, const at::Tensor& from) {
                   sums ? to.add_(from) : to.copy_(from);
                 });
  }
  return result.to(x.scalar_type());
}

struct RowsToColumnsNode : torch::autograd::Node {
  Communicator* group = nullptr;
  AttentionParts parts;
  int64_t rows = 0, width = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {ToRows(gradients[0], rows, width, parts, *group)};
  }
  std::string name() const override { return "RowsToColumns"; }
};

struct ColumnsToRowsNode : torch::autograd::Node {
  Communicator* group = nullptr;
  AttentionParts parts;
  int64_t rows = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {ToColumns(gradients[0], rows, parts, *group)};
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

at::Tensor RowsToColumns(const at::Tensor& part, int64_t rows, const AttentionParts& parts,
                         Communicator& group) {
  const bool needs_node = NeedsGradient(part);
  const BelowAutograd guard;
  at::Tensor y = ToColumns(part, rows, parts, group);
  if (!needs_node) return y;
  auto node = std::make_shared<RowsToColumnsNode>();
  node->group = &group;
  node->parts = parts;
  node->rows = rows;
  node->width = part.size(1);
  Record(y, node, {&part});
  return y;
}

at::Tensor ColumnsToRows(const at::Tensor& x, int64_t rows, const AttentionParts& parts,
                         Communicator& group) {
  const bool needs_node = NeedsGradient(x);
  const BelowAutograd guard;
  int64_t width = 0;
  for (const Ranges& columns : parts.columns)
    for (const Range& range : columns) width = std::max(width, range.end);
  at::Tensor y = ToRows(x, rows, width, parts, group);
  if (!needs_node) return y;
  auto node = std::make_shared<ColumnsToRowsNode>();
  node->group = &group;
  node->parts = parts;
  node->rows = rows;
  Record(y, node, {&x});
  return y;
}

at::Tensor TakeRows(const at::Tensor& x, const Ranges& rows) {
  if (rows.size() == 1) return x.narrow(0, rows[0].begin, rows[0].size());
  std::vector<at::Tensor> pieces = {x.narrow(0, 0, 0)};  // where there are none
  for (const Range& range : rows) pieces.push_back(x.narrow(0, range.begin, range.size()));
  return at::cat(pieces);
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
