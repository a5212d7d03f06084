#include "tests/device/flash_stand_in.h"

#include <ATen/ATen.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/device/stand_in_memory.h"

namespace equipoise::testing {
namespace {

std::atomic<int64_t> calls{0};

struct Problem {
  at::Tensor q, k, v;  // on the host, fp64
  std::vector<int64_t> q_ends, k_ends;
  bool causal;
};

std::vector<int64_t> EndsOf(const at::Tensor& ends, int64_t rows, int64_t longest) {
  TORCH_CHECK(ends.is_cuda() && ends.scalar_type() == at::kInt && ends.is_contiguous(),
              "ends of segments are int32 on the GPU");
  const at::Tensor host = StandInOnHost(ends).to(at::kLong);
  const auto* first = host.const_data_ptr<int64_t>();
  std::vector<int64_t> values(first, first + host.numel());
  TORCH_CHECK(values.front() == 0 && values.back() == rows, "ends of ", values.back(), " rows");
  for (size_t s = 1; s < values.size(); ++s) {
    TORCH_CHECK(values[s - 1] <= values[s] && values[s] - values[s - 1] <= longest, "segment ", s);
  }
  return values;
}

void CheckInput(const at::Tensor& x, const at::Tensor& q) {
  TORCH_CHECK(x.is_cuda() && x.dim() == 3 && x.stride(2) == 1, "input of flash attention");
  TORCH_CHECK(x.scalar_type() == q.scalar_type() && c10::elementSize(x.scalar_type()) == 2,
              "flash attention takes 16-bit tensors, not ", x.scalar_type());
  TORCH_CHECK(x.size(2) == q.size(2) && x.size(2) % 8 == 0 && x.size(2) <= 256, "head size");
  TORCH_CHECK(q.size(1) % x.size(1) == 0, "heads");
}

at::Tensor Wide(const at::Tensor& x) { return StandInOnHost(x).to(at::kDouble); }

Problem MakeProblem(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  ++calls;
  CheckInput(q, q);
  CheckInput(k, q);
  CheckInput(v, q);
  TORCH_CHECK(k.sizes() == v.sizes(), "keys and values");
  return {Wide(q), Wide(k), Wide(v), {}, {}, causal};
}

// One segment: [heads, rows, ...]; keys once for each query head.
struct Segment {
  at::Tensor q, k, v, scores;
  double scale;
};

// Calls run(segment, queries, keys) for each segment; the latter two cut a tensor of the pass.
template <class Run>
void ForEachSegment(const Problem& in, const Run& run) {
  const int64_t group = in.q.size(1) / in.k.size(1);
  for (size_t s = 0; s + 1 < in.q_ends.size(); ++s) {
    const int64_t rows = in.q_ends[s + 1] - in.q_ends[s], keys = in.k_ends[s + 1] - in.k_ends[s];
    if (rows == 0) continue;
    const auto of_queries = [&](const at::Tensor& x) {
      return x.narrow(0, in.q_ends[s], rows).transpose(0, 1);
    };
    const auto of_keys = [&](const at::Tensor& x) {
      return x.narrow(0, in.k_ends[s], keys).transpose(0, 1);
    };
    const auto repeated = [&](const at::Tensor& x) {
      return of_keys(x).repeat_interleave(group, 0);
    };
    Segment segment{of_queries(in.q),
                    repeated(in.k),
                    repeated(in.v),
                    {},
                    1 / std::sqrt(static_cast<double>(in.q.size(2)))};
    segment.scores = at::bmm(segment.q, segment.k.transpose(1, 2)) * segment.scale;
    if (in.causal) {
      const at::Tensor hidden = at::ones({rows, keys}, at::kBool).triu(1 + keys - rows);
      segment.scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
    }
    run(segment, of_queries, of_keys);
  }
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> FlashForward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& q_ends, const std::optional<at::Tensor>& k_ends, int64_t max_q,
    int64_t max_k, double dropout, bool causal, bool debug, std::optional<double> scale,
    std::optional<int64_t> left, std::optional<int64_t> right,
    const std::optional<at::Tensor>& used, const std::optional<at::Tensor>& alibi) {
  TORCH_CHECK(
      q_ends && k_ends && dropout == 0 && !debug && !scale && !left && !right && !used && !alibi,
      "an option that the stand-in does not know");
  Problem in = MakeProblem(q, k, v, causal);
  in.q_ends = EndsOf(*q_ends, q.size(0), max_q);
  in.k_ends = EndsOf(*k_ends, k.size(0), max_k);
  at::Tensor y = at::zeros_like(in.q), lse = at::zeros({q.size(1), q.size(0), 1}, at::kDouble);
  ForEachSegment(in, [&](const Segment& s, const auto& of_queries, const auto&) {
    of_queries(y).copy_(at::bmm(s.scores.softmax(-1), s.v));
    of_queries(lse.transpose(0, 1)).copy_(s.scores.logsumexp(-1, /*keepdim=*/true));
  });
  const at::TensorOptions options = q.options();
  const at::Tensor result = ToStandIn(y, options),
                   sums = ToStandIn(lse.squeeze(-1), options.dtype(at::kFloat)),
                   seed = at::empty({2}, options.dtype(at::kUInt64)),
                   unused = at::empty({}, options.dtype(at::kUInt64));
  ReportUses("aten::_flash_attention_forward", {q, k, v, *q_ends, *k_ends}, {result, sums, seed});
  return {result, sums, seed, unused, at::empty({0}, options)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(
    const at::Tensor& g, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& y, const at::Tensor& lse, const at::Tensor& q_ends, const at::Tensor& k_ends,
    int64_t max_q, int64_t max_k, double dropout, bool causal, const at::Tensor& seed,
    const at::Tensor& unused, std::optional<double> scale, std::optional<int64_t> left,
    std::optional<int64_t> right) {
  TORCH_CHECK(dropout == 0 && !scale && !left && !right,
              "an option that the stand-in does not know");
  TORCH_CHECK(y.sizes() == q.sizes() && lse.scalar_type() == at::kFloat && lse.dim() == 2 &&
                  lse.size(0) == q.size(1) && lse.size(1) == q.size(0),
              "state of the forward pass");
  TORCH_CHECK(seed.is_cuda() && seed.scalar_type() == at::kUInt64 && seed.numel() == 2 &&
                  unused.scalar_type() == at::kUInt64,
              "random state of the forward pass");
  CheckInput(g, q);
  Problem in = MakeProblem(q, k, v, causal);
  in.q_ends = EndsOf(q_ends, q.size(0), max_q);
  in.k_ends = EndsOf(k_ends, k.size(0), max_k);
  const at::Tensor up = Wide(g), sums = Wide(lse).unsqueeze(-1).transpose(0, 1),
                   along = (up * Wide(y)).sum(-1, /*keepdim=*/true);
  at::Tensor gq = at::zeros_like(in.q), gk = at::zeros_like(in.k), gv = at::zeros_like(in.v);
  ForEachSegment(in, [&](const Segment& s, const auto& of_queries, const auto& of_keys) {
    const auto summed = [&](const at::Tensor& d) {  // over the query heads of a key head
      return d.view({in.k.size(1), -1, d.size(1), d.size(2)}).sum(1);
    };
    const at::Tensor p = (s.scores - of_queries(sums)).exp();
    const at::Tensor gs = of_queries(up), gp = at::bmm(gs, s.v.transpose(1, 2));
    const at::Tensor d = p * (gp - of_queries(along)) * s.scale;
    of_queries(gq).copy_(at::bmm(d, s.k));
    of_keys(gk).copy_(summed(at::bmm(d.transpose(1, 2), s.q)));
    of_keys(gv).copy_(summed(at::bmm(p.transpose(1, 2), gs)));
  });
  const at::Tensor dq = ToStandIn(gq, q.options()), dk = ToStandIn(gk, k.options()),
                   dv = ToStandIn(gv, v.options());
  ReportUses("aten::_flash_attention_backward", {g, q, k, v, y, lse, q_ends, k_ends, seed},
             {dq, dk, dv});
  return {dq, dk, dv};
}

int64_t FlashCalls() { return calls; }

}  // namespace equipoise::testing
