#include "tests/device/cudnn_stand_in.h"

#include <ATen/ATen.h>

#include "tests/device/flash_stand_in.h"
#include "tests/device/stand_in_memory.h"

// Results are those of flash attention's stand-in; only what is passed from forward to backward has
// cuDNN's shapes.

namespace equipoise::testing {
namespace {

void CheckCommon(const at::Tensor& q, double dropout, const std::optional<double>& scale) {
  TORCH_CHECK(dropout == 0 && !scale, "an option that the stand-in does not know");
  TORCH_CHECK(q.size(-1) % 8 == 0 && q.size(-1) <= 128, "head size ", q.size(-1));
}

// cuDNN's random state: one int64 each.
at::Tensor RandomState(const at::Tensor& q) { return at::empty({}, q.options().dtype(at::kLong)); }
void CheckState(const at::Tensor& seed, const at::Tensor& offset) {
  for (const at::Tensor& state : {seed, offset}) {
    TORCH_CHECK(state.is_cuda() && state.scalar_type() == at::kLong && state.numel() == 1,
                "random state of the forward pass");
  }
}

at::Tensor FlashSeed(const at::Tensor& q) { return at::empty({2}, q.options().dtype(at::kUInt64)); }
at::Tensor FlashUnused(const at::Tensor& q) {
  return at::empty({}, q.options().dtype(at::kUInt64));
}

// Rows of tiles, one after the other.
at::Tensor Flat(const at::Tensor& tiles) { return tiles.transpose(1, 2).flatten(0, 1); }
at::Tensor Tiled(const at::Tensor& flat, const at::Tensor& like) {
  return flat.view({like.size(0), like.size(2), like.size(1), like.size(3)}).transpose(1, 2);
}

at::Tensor EndsOfTiles(const at::Tensor& q) {
  const at::Tensor ends = at::arange(q.size(0) + 1, at::TensorOptions(at::kInt)).mul_(q.size(2));
  return ToStandIn(ends, q.options().dtype(at::kInt));
}

std::vector<int64_t> HostEnds(const at::Tensor& ends) {
  const at::Tensor host = StandInOnHost(ends).to(at::kLong);
  const auto* first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

// Sums of exponentials [heads, rows] as [segments, heads, longest, 1], or back.
at::Tensor SumsBySegment(const at::Tensor& flat, const at::Tensor& ends, int64_t longest) {
  const std::vector<int64_t> at = HostEnds(ends);
  const auto segments = static_cast<int64_t>(at.size()) - 1;
  const at::Tensor host = StandInOnHost(flat);
  at::Tensor sums = at::zeros({segments, flat.size(0), longest, 1}, at::kFloat);
  for (int64_t s = 0; s < segments; ++s) {
    const int64_t begin = at[static_cast<size_t>(s)], rows = at[static_cast<size_t>(s) + 1] - begin;
    sums[s].narrow(1, 0, rows).squeeze(-1).copy_(host.narrow(1, begin, rows));
  }
  return ToStandIn(sums, flat.options());
}
at::Tensor FlatSums(const at::Tensor& sums, const at::Tensor& ends) {
  const std::vector<int64_t> at = HostEnds(ends);
  const at::Tensor host = StandInOnHost(sums);
  at::Tensor flat = at::zeros({sums.size(1), at.back()}, at::kFloat);
  for (size_t s = 0; s + 1 < at.size(); ++s) {
    const int64_t rows = at[s + 1] - at[s];
    flat.narrow(1, at[s], rows).copy_(host[static_cast<int64_t>(s)].narrow(1, 0, rows).squeeze(-1));
  }
  return ToStandIn(flat, sums.options());
}

CudnnResult Forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& ends, int64_t longest, bool causal) {
  auto [y, lse, seed, unused, mask] =
      FlashForward(q, k, v, ends, ends, longest, longest, 0.0, causal, false, std::nullopt,
                   std::nullopt, std::nullopt, std::nullopt, std::nullopt);
  return {y,
          SumsBySegment(lse, ends, longest),
          ends,
          ends,
          longest,
          longest,
          RandomState(q),
          RandomState(q),
          mask};
}

Gradients Backward(const at::Tensor& g, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& v, const CudnnResult& forward, bool causal) {
  const auto& [y, lse, q_ends, k_ends, max_q, max_k, seed, offset, bias] = forward;
  const int64_t longest = max_q.expect_int();
  CheckState(seed, offset);
  TORCH_CHECK(!bias.defined() && max_k == max_q && lse.scalar_type() == at::kFloat &&
                  lse.sizes() == at::IntArrayRef({q_ends.size(0) - 1, q.size(1), longest, 1}),
              "state of the forward pass");
  return FlashBackward(g, q, k, v, y, FlatSums(lse, q_ends), q_ends, k_ends, longest, longest, 0.0,
                       causal, FlashSeed(q), FlashUnused(q), std::nullopt, std::nullopt,
                       std::nullopt);
}

}  // namespace

CudnnResult CudnnTilesForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& bias, bool sums, double dropout,
                              bool causal, bool debug, std::optional<double> scale) {
  TORCH_CHECK(q.dim() == 4 && q.sizes() == k.sizes() && k.sizes() == v.sizes(), "tiles");
  CheckCommon(q, dropout, scale);
  TORCH_CHECK(!bias && sums && !debug, "an option that the stand-in does not know");
  const CudnnResult flat = Forward(Flat(q), Flat(k), Flat(v), EndsOfTiles(q), q.size(2), causal);
  CudnnResult result = flat;
  std::get<0>(result) = Tiled(std::get<0>(flat), q);
  std::get<2>(result) = std::get<3>(result) = at::Tensor();
  ReportUses("aten::_scaled_dot_product_cudnn_attention", {q, k, v}, {std::get<0>(result)});
  return result;
}

Gradients CudnnTilesBackward(const at::Tensor& g, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const at::Tensor& y, const at::Tensor& lse,
                             const at::Tensor& seed, const at::Tensor& offset,
                             const at::Tensor& bias, const at::Tensor& q_ends,
                             const at::Tensor& k_ends, c10::SymInt max_q, c10::SymInt max_k,
                             double dropout, bool causal, std::optional<double> scale) {
  TORCH_CHECK(!q_ends.defined() && !k_ends.defined() && max_q == q.size(2) && max_k == k.size(2),
              "tiles have no ends");
  CheckCommon(q, dropout, scale);
  const at::Tensor ends = EndsOfTiles(q);
  const auto [dq, dk, dv] =
      Backward(Flat(g), Flat(q), Flat(k), Flat(v),
               {Flat(y), lse, ends, ends, max_q, max_k, seed, offset, bias}, causal);
  ReportUses("aten::_scaled_dot_product_cudnn_attention_backward", {g, q, k, v, y, lse, seed},
             {dq, dk, dv});
  return {Tiled(dq, q), Tiled(dk, q), Tiled(dv, q)};
}

}  // namespace equipoise::testing
