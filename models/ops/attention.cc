#include "models/ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "configs/base/error.h"
#include "models/ops/device_attention.h"
#include "models/ops/matrix_product.h"
#include "models/ops/record.h"
#include "models/ops/short_attention.h"
#include "models/ops/tile_attention.h"
#include "parallel/intra_op.h"

// Packed segments are computed one by one with LibTorch's flash kernel on the CPU, so that no N x N
// mask or score matrix of a row exists; grouped queries are views with stride 0 over the group.
// Backward is the kernel's, from the saved log-sum-exp. For short rows of equal length, backward by
// matrix products recomputes the probabilities instead, in chunks. Where the kernel's own products
// are slow (AvoidsMkl()), those kernels are left out in bf16: short segments go to
// short_attention.h, and forward of rows of equal length is by products too.

namespace equipoise::ops {
namespace {

// Sizes of heads. The kernel takes [batch, heads, rows, head_dim] with any strides; a packed
// segment is passed as [kv_heads, heads of the group, rows, head_dim], with keys of stride 0 over
// the group: grouped queries without a copy of the keys.
struct Heads {
  int64_t groups, per_group, head_dim;
};

// [rows, heads * head_dim] -> [groups, per_group, rows, head_dim]
at::Tensor Queries(const at::Tensor& x, const Heads& heads) {
  return x.view({x.size(0), heads.groups, heads.per_group, heads.head_dim}).permute({1, 2, 0, 3});
}

// [rows, groups * head_dim] -> [groups, per_group, rows, head_dim], stride 0 over per_group
at::Tensor Keys(const at::Tensor& x, const Heads& heads) {
  return x.view({x.size(0), heads.groups, 1, heads.head_dim})
      .permute({1, 2, 0, 3})
      .expand({heads.groups, heads.per_group, x.size(0), heads.head_dim});
}

Heads HeadsOf(const at::Tensor& q, const at::Tensor& k, int64_t head_dim) {
  const int64_t groups = k.size(-1) / head_dim;
  return {groups, q.size(-1) / (groups * head_dim), head_dim};
}

// A call of the kernel: rows of q, and the rows of k and v that they see.
struct Call {
  Range queries, keys;
  bool causal = true;
};

at::Tensor Cut(const at::Tensor& x, const Range& rows) {
  return x.narrow(0, rows.begin, rows.size());
}

// Whether attention of a packed segment of so many rows is that of short_attention.h.
bool IsShort(const at::Tensor& q, int64_t rows) {
  return rows <= kShortAttentionRows && q.scalar_type() == at::kBFloat16 && AvoidsMkl();
}

const Bf16* Elements(const at::Tensor& t) { return static_cast<const Bf16*>(t.const_data_ptr()); }
Bf16* MutableElements(const at::Tensor& t) { return static_cast<Bf16*>(t.mutable_data_ptr()); }

// Elements of some rows, from a column on.
HeadRows<const Bf16> RowsOf(const at::Tensor& x, const Range& rows, int64_t column) {
  return {Elements(x) + rows.begin * x.stride(0) + column, x.stride(0)};
}
HeadRows<Bf16> MutableRowsOf(const at::Tensor& x, const Range& rows, int64_t column) {
  return {MutableElements(x) + rows.begin * x.stride(0) + column, x.stride(0)};
}

// A short segment: its rows of q, k and v, [rows, heads * head_dim], their last stride 1. Tensors
// of its rows alone would take longer than what is computed with them.
struct ShortCall {
  const at::Tensor &q, &k, &v;
  Range queries, keys;
  bool causal;
};

// Calls run(segment, first query column, first key column, memory) for each key head.
template <class Run>
void ForShortHeads(const ShortCall& call, const Heads& heads, const Run& run) {
  IntraOpFor(0, heads.groups, /*grain=*/1, [&](int64_t begin, int64_t end) {
    static thread_local ShortAttentionMemory memory;  // segments are often as long as those before
    for (int64_t head = begin; head < end; ++head) {
      const int64_t of_key = head * heads.head_dim, of_query = of_key * heads.per_group;
      const ShortSegment segment = {call.queries.size(),
                                    heads.head_dim,
                                    heads.per_group,
                                    call.causal,
                                    RowsOf(call.q, call.queries, of_query),
                                    RowsOf(call.k, call.keys, of_key),
                                    RowsOf(call.v, call.keys, of_key)};
      run(segment, of_query, of_key, memory);
    }
  });
}

void RunShort(const ShortCall& call, const Heads& heads, const at::Tensor& y) {
  ForShortHeads(
      call, heads,
      [&](const ShortSegment& segment, int64_t of_query, int64_t, ShortAttentionMemory& memory) {
        ShortAttention(segment, MutableRowsOf(y, call.queries, of_query), memory);
      });
}

// Writes the gradients of q, k and v for the gradient g of the result.
void RunShortBackward(const ShortCall& call, const Heads& heads, const at::Tensor& g,
                      const std::array<at::Tensor, 3>& results) {
  ForShortHeads(call, heads,
                [&](const ShortSegment& segment, int64_t of_query, int64_t of_key,
                    ShortAttentionMemory& memory) {
                  const ShortGradients gradients = {
                      RowsOf(g, call.queries, of_query),
                      MutableRowsOf(results[0], call.queries, of_query),
                      MutableRowsOf(results[1], call.keys, of_key),
                      MutableRowsOf(results[2], call.keys, of_key)};
                  ShortAttentionBackward(segment, gradients, memory);
                });
}

struct PackedAttentionNode : SavingNode {
  Heads heads{};
  std::vector<Call> calls;
  bool overlap = false;  // rows of q, or of k and v, are in several calls, or in none
  at::Tensor q, k, v, y;
  std::vector<at::Tensor> lse;  // of each call's queries; undefined for short segments

  // In fp32: in bf16 the kernel's backward takes five times as long for short segments, and equally
  // long for others (one core with AMX).
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = gradients[0].contiguous();
    at::Tensor gq = Result(q), gk = Result(k), gv = Result(v);
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto& [queries, keys, causal] = calls[i];
      if (queries.size() == 0) continue;
      const auto cut = [](const at::Tensor& t, const Range& rows) {
        return Cut(t, rows).to(at::kFloat);
      };
      if (!lse[i].defined()) {
        RunShortBackward({q, k, v, queries, keys, causal}, heads, g, {gq, gk, gv});
        continue;
      }
      auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          Queries(cut(g, queries), heads), Queries(cut(q, queries), heads),
          Keys(cut(k, keys), heads), Keys(cut(v, keys), heads), Queries(cut(y, queries), heads),
          lse[i], /*dropout_p=*/0.0, causal);
      Store(dq, Queries(Cut(gq, queries), heads));
      SumOverGroup(dk, Cut(gk, keys));
      SumOverGroup(dv, Cut(gv, keys));
    }
    return {gq.to(q.scalar_type()), gk.to(k.scalar_type()), gv.to(v.scalar_type())};
  }
  void ForEachSaved(const Visit& visit) override {
    for (at::Tensor* saved : {&q, &k, &v, &y}) visit(*saved);
    for (at::Tensor& each : lse) visit(each);
  }
  std::string name() const override { return "PackedAttention"; }

 private:
  at::Tensor Result(const at::Tensor& like) const {
    return overlap ? at::zeros(like.sizes(), like.options().dtype(at::kFloat))
                   : at::empty(like.sizes(), like.options());
  }
  void Store(const at::Tensor& value, const at::Tensor& target) const {
    if (overlap) {
      target.add_(value);
    } else {
      target.copy_(value);
    }
  }
  // d [groups, per_group, rows, head_dim] -> result [rows, groups * head_dim]
  void SumOverGroup(const at::Tensor& d, const at::Tensor& result) const {
    const at::Tensor target =
        result.view({result.size(0), heads.groups, heads.head_dim}).permute({1, 0, 2});
    Store(heads.per_group == 1 ? d.select(1, 0) : d.sum(1), target);
  }
};

struct Attended {
  at::Tensor y;    // [groups, per_group, rows, head_dim]
  at::Tensor lse;  // [groups, per_group, rows] fp32
};

Attended Run(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
             const Heads& heads) {
  auto [y, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      Queries(Cut(q, call.queries), heads), Keys(Cut(k, call.keys), heads),
      Keys(Cut(v, call.keys), heads), /*dropout_p=*/0.0, call.causal);
  return {y, lse};
}

// Attention over the keys of both.
Attended Together(const Attended& a, const Attended& b) {
  const at::Tensor lse = at::logaddexp(a.lse, b.lse);
  const auto weighted = [&](const Attended& part) {
    return part.y.to(at::kFloat) * at::exp(part.lse - lse).unsqueeze(-1);
  };
  return {weighted(a).add_(weighted(b)), lse};
}

// Records a node for y of all calls, unless nothing needs a gradient.
void RecordCalls(const at::Tensor& y, std::vector<Call> calls, std::vector<at::Tensor> lse,
                 bool overlap, const std::array<at::Tensor, 3>& qkv, const Heads& heads) {
  auto node = std::make_shared<PackedAttentionNode>();
  node->heads = heads;
  node->calls = std::move(calls);
  node->overlap = overlap;
  node->q = qkv[0].detach();
  node->k = qkv[1].detach();
  node->v = qkv[2].detach();
  node->y = y.detach();
  node->lse = std::move(lse);
  Record(y, node, {&qkv[0], &qkv[1], &qkv[2]});
}

// Inverse of SplitHeads().
at::Tensor Merge(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), -1});
}

struct FullAttentionNode : SavingNode {
  at::Tensor q, k, v, y, lse;  // split in heads; y and lse only for the flash kernel

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = SplitHeads(gradients[0].contiguous(), q.size(3));
    // On the CPU's bf16 units: ten times as fast there as the flash kernel's backward.
    if (!lse.defined()) return TilesByProducts(q).Backward(q, k, v, g);
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        g, q, k, v, y, lse, /*dropout_p=*/0.0, /*is_causal=*/false);
    return {Merge(dq), Merge(dk), Merge(dv)};
  }
  void ForEachSaved(const Visit& visit) override {
    for (at::Tensor* saved : {&q, &k, &v, &y, &lse}) visit(*saved);
  }
  std::string name() const override { return "FullAttention"; }
};

at::Tensor FullAttentionOnDevice(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 int64_t head_dim) {
  AttentionSegments tiles;
  for (int64_t i = 0; i <= q.size(0); ++i) tiles.queries.push_back(i * q.size(1));
  tiles.keys = tiles.queries;
  return DeviceAttention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), tiles, head_dim)
      .view(q.sizes());
}

// Rows of packed segments: ranges of all rows, the first row of each one's segment, and where each
// ends in q.
struct RowsOfSegments {
  const std::vector<Range>& ranges;
  const std::vector<int64_t>&begins, &ends;
};

// The keys that each range sees lie one behind the other, as the kernels take them.
at::Tensor RowsOnDevice(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const RowsOfSegments& rows, int64_t head_dim) {
  std::vector<at::Tensor> keys = {k.narrow(0, 0, 0)}, values = {v.narrow(0, 0, 0)};
  AttentionSegments segments = {rows.ends, {0}, /*causal=*/true};
  for (size_t i = 0; i < rows.ranges.size(); ++i) {
    const Range seen = {rows.begins[i], rows.ranges[i].end};
    keys.push_back(Cut(k, seen));
    values.push_back(Cut(v, seen));
    segments.keys.push_back(segments.keys.back() + seen.size());
  }
  return DeviceAttention(q, at::cat(keys), at::cat(values), segments, head_dim);
}

}  // namespace

at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<int64_t>& cu_seqlens, int64_t head_dim, bool causal) {
  EQUIPOISE_CHECK(!cu_seqlens.empty() && cu_seqlens.back() == q.size(0), q.size(0), " rows");
  if (!q.is_cpu()) {
    return DeviceAttention(q, k, v, {cu_seqlens, cu_seqlens, causal}, head_dim);
  }
  const bool needs_node = NeedsNode({&q, &k, &v}, {});
  const BelowAutograd guard;
  const Heads heads = HeadsOf(q, k, head_dim);
  at::Tensor y = at::empty(q.sizes(), q.options());
  std::vector<Call> calls;
  std::vector<at::Tensor> lse;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const Range rows = {cu_seqlens[s], cu_seqlens[s + 1]};
    if (rows.size() == 0) continue;
    calls.push_back({rows, rows, causal});
    if (IsShort(q, rows.size())) {
      RunShort({q, k, v, rows, rows, causal}, heads, y);
      lse.emplace_back();
      continue;
    }
    Attended result = Run(calls.back(), q, k, v, heads);
    Queries(Cut(y, rows), heads).copy_(result.y);
    lse.push_back(std::move(result.lse));
  }
  if (needs_node) {
    RecordCalls(y, std::move(calls), std::move(lse), /*overlap=*/false, {q, k, v}, heads);
  }
  return y;
}

at::Tensor AttentionOfRows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<Range>& ranges, const std::vector<int64_t>& cu_seqlens,
                           int64_t head_dim) {
  // Of each range the first row of its segment, and its rows in q.
  std::vector<int64_t> begins;
  std::vector<int64_t> ends = {0};
  for (const Range& range : ranges) {
    begins.push_back(
        *std::prev(std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), range.begin)));
    ends.push_back(ends.back() + range.size());
  }
  EQUIPOISE_CHECK(ends.back() == q.size(0), q.size(0), " rows of ", ends.back());
  if (!q.is_cpu()) return RowsOnDevice(q, k, v, {ranges, begins, ends}, head_dim);
  const bool needs_node = NeedsNode({&q, &k, &v}, {});
  const BelowAutograd guard;
  const Heads heads = HeadsOf(q, k, head_dim);
  at::Tensor y = at::empty(q.sizes(), q.options());
  std::vector<Call> calls;
  std::vector<at::Tensor> lse;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range queries = {ends[i], ends[i + 1]}, before = {begins[i], ranges[i].begin};
    calls.push_back({queries, ranges[i], /*causal=*/true});
    Attended result = Run(calls.back(), q, k, v, heads);
    if (before.size() > 0) {
      calls.push_back({queries, before, /*causal=*/false});
      result = Together(result, Run(calls.back(), q, k, v, heads));
      lse.push_back(result.lse);
    }
    lse.push_back(result.lse);
    Queries(Cut(y, queries), heads).copy_(result.y);
  }
  if (needs_node) {
    RecordCalls(y, std::move(calls), std::move(lse), /*overlap=*/true, {q, k, v}, heads);
  }
  return y;
}

at::Tensor FullAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         int64_t head_dim) {
  if (!q.is_cpu()) return FullAttentionOnDevice(q, k, v, head_dim);
  const bool needs_node = NeedsNode({&q, &k, &v}, {});
  const BelowAutograd guard;
  const at::Tensor qs = SplitHeads(q, head_dim), ks = SplitHeads(k, head_dim),
                   vs = SplitHeads(v, head_dim);
  at::Tensor result, lse, y;
  if (AvoidsMkl() && q.scalar_type() == at::kBFloat16) {
    y = TilesByProducts(qs).Forward(qs, ks, vs);
  } else {
    std::tie(result, lse) = at::_scaled_dot_product_flash_attention_for_cpu(
        qs, ks, vs, /*dropout_p=*/0.0, /*is_causal=*/false);
    y = Merge(result);
  }
  if (!needs_node) return y;
  auto node = std::make_shared<FullAttentionNode>();
  node->q = qs;
  node->k = ks;
  node->v = vs;
  if (q.scalar_type() == at::kFloat) {
    node->y = result;
    node->lse = lse;
  }
  Record(y, node, {&q, &k, &v});
  return y;
}

at::Tensor CachedAttention(const at::Tensor& q, const std::vector<at::Tensor>& keys,
                           const std::vector<at::Tensor>& values,
                           const std::vector<int64_t>& cu_seqlens, int64_t head_dim) {
  const BelowAutograd guard;
  std::vector<int64_t> key_ends = {0};
  for (size_t s = 0; s < keys.size(); ++s) {
    const int64_t rows = cu_seqlens[s + 1] - cu_seqlens[s];
    EQUIPOISE_CHECK(rows == keys[s].size(0) || rows == 1, rows, " rows behind a filled cache");
    key_ends.push_back(key_ends.back() + keys[s].size(0));
  }
  if (!q.is_cpu()) {
    return DeviceAttention(q, at::cat(keys), at::cat(values),
                           {cu_seqlens, std::move(key_ends), /*causal=*/true}, head_dim);
  }
  at::Tensor y = at::empty(q.sizes(), q.options());
  for (size_t s = 0; s < keys.size(); ++s) {
    const int64_t rows = cu_seqlens[s + 1] - cu_seqlens[s];
    const auto cut = [&](const at::Tensor& t) { return t.narrow(0, cu_seqlens[s], rows); };
    const Heads heads = HeadsOf(q, keys[s], head_dim);
    // A single row sees all keys.
    const at::Tensor result = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        Queries(cut(q), heads), Keys(keys[s], heads), Keys(values[s], heads), /*dropout_p=*/0.0,
        /*is_causal=*/rows > 1));
    Queries(cut(y), heads).copy_(result);
  }
  return y;
}

}  // namespace equipoise::ops
