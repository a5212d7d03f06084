#include "models/ops/device_attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "models/ops/record.h"
#include "parallel/device.h"
#include "parallel/streams.h"

namespace equipoise::ops {
namespace {

// Probabilities in memory at a time.
constexpr int64_t kChunkProbabilities = int64_t{1} << 26;

// What computes attention.
enum class Kernel : uint8_t { kProducts, kFlash, kCudnnTiles };

bool AreTiles(const AttentionSegments& segments) {
  const std::vector<int64_t>& ends = segments.queries;
  for (size_t s = 1; s < ends.size(); ++s) {
    if (ends[s] != static_cast<int64_t>(s) * ends[1]) return false;
  }
  return !segments.causal && ends.size() > 1 && segments.keys == ends;
}

bool PrefersCudnn() {
  for (const at::SDPBackend backend : at::globalContext().sDPPriorityOrder()) {
    if (backend == at::SDPBackend::cudnn_attention) return true;
    if (backend == at::SDPBackend::flash_attention) return false;
  }
  return false;
}

// By the limits of LibTorch 2.11 and the user's choice.
Kernel KernelFor(const at::Tensor& q, const AttentionSegments& segments, int64_t head_dim) {
  if (q.size(0) == 0 || !q.is_cuda() || c10::elementSize(q.scalar_type()) != 2 ||
      head_dim % 8 != 0 || head_dim > 256) {
    return Kernel::kProducts;
  }
  // cuDNN's over segments is not taken: LibTorch 2.11 builds a plan anew in each call (99 ms in
  // place of 1 ms), and on an H200 its gradients were wrong.
  const bool cudnn = head_dim <= 128 && AreTiles(segments) && PrefersCudnn();
  return cudnn ? Kernel::kCudnnTiles : Kernel::kFlash;
}

at::Tensor SplitHeads(const at::Tensor& x, int64_t head_dim) {
  return x.view({x.size(0), -1, head_dim});
}

int64_t Longest(const std::vector<int64_t>& ends) {
  int64_t longest = 0;
  for (size_t s = 1; s < ends.size(); ++s) longest = std::max(longest, ends[s] - ends[s - 1]);
  return longest;
}

// The ends of segments on a device. All layers of a micro-batch have the same ones: the last few
// are kept, for one copy from the host rather than one a layer. Only the stream that was given the
// copy is behind it.
class DeviceEnds {
 public:
  at::Tensor Of(const std::vector<int64_t>& ends, at::Device device) {
    const std::lock_guard lock(mutex_);
    const c10::Stream stream = ComputeStream(device);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return kept.ends == ends && kept.stream == stream;
    });
    if (found != kept_.end()) return found->on_device;
    at::Tensor host = at::empty({static_cast<int64_t>(ends.size())}, at::kInt);
    std::copy(ends.begin(), ends.end(), host.mutable_data_ptr<int32_t>());
    if (kept_.size() == kMost) kept_.pop_front();
    kept_.push_back({ends, stream, ToDevice(host, device)});
    return kept_.back().on_device;
  }

 private:
  static constexpr size_t kMost = 8;
  struct Kept {
    std::vector<int64_t> ends;
    c10::Stream stream;
    at::Tensor on_device;  // int32
  };
  std::mutex mutex_;
  std::deque<Kept> kept_;
};

at::Tensor EndsOnDevice(const std::vector<int64_t>& ends, const at::Tensor& like) {
  // Never destroyed: it would outlive LibTorch's allocators.
  static auto* const kept = std::make_unique<DeviceEnds>().release();
  return kept->Of(ends, like.device());
}

// Some key heads of one segment: [key heads, rows, head_dim] fp32. The query heads of a key head
// are concatenated along the rows, so that keys are not copied and the products of backward sum
// over them.
struct Piece {
  at::Tensor q, k, v;
  at::Tensor mask;  // [queries, keys], true where a query does not see a key; undefined: all seen
  double scale = 1;

  at::Tensor Probabilities() const {
    at::Tensor scores = at::bmm(q, k.transpose(1, 2)).mul_(scale);
    if (mask.defined()) {
      scores.view({scores.size(0), -1, mask.size(0), mask.size(1)})
          .masked_fill_(mask, -std::numeric_limits<double>::infinity());
    }
    return at::_softmax(scores, -1, /*half_to_float=*/false);
  }
};

// The range of a tensor [rows, heads * head_dim] that belongs to a piece, as [key heads, rows,
// head_dim] with the rows of several heads concatenated.
struct Cut {
  int64_t row, rows;           // of the segment
  int64_t head, heads;         // key heads
  int64_t per_head, head_dim;  // query heads of a key head; 1 for keys

  // A view [key heads, per_head, rows, head_dim].
  at::Tensor View(const at::Tensor& x) const {
    return x.narrow(0, row, rows)
        .view({rows, -1, per_head, head_dim})
        .narrow(1, head, heads)
        .permute({1, 2, 0, 3});
  }
  at::Tensor Read(const at::Tensor& x) const {
    return View(x).to(at::kFloat).reshape({heads, per_head * rows, head_dim});
  }
  void Write(const at::Tensor& value, const at::Tensor& x) const {
    View(x).copy_(value.view({heads, per_head, rows, head_dim}));
  }
};

struct Inputs {
  at::Tensor q, k, v;
  AttentionSegments segments;
  int64_t head_dim = 0;

  // Calls run(piece, cut of queries, cut of keys) for all pieces.
  void ForEachPiece(const std::function<void(const Piece&, const Cut&, const Cut&)>& run) const {
    for (size_t s = 0; s + 1 < segments.queries.size(); ++s) RunSegment(s, run);
  }

 private:
  void RunSegment(size_t s,
                  const std::function<void(const Piece&, const Cut&, const Cut&)>& run) const {
    const int64_t row = segments.queries[s], rows = segments.queries[s + 1] - row;
    const int64_t key = segments.keys[s], keys = segments.keys[s + 1] - key;
    if (rows == 0) return;
    const int64_t key_heads = k.size(1) / head_dim, per_head = q.size(1) / k.size(1);
    Piece piece;
    piece.scale = 1 / std::sqrt(static_cast<double>(head_dim));
    if (segments.causal && rows > 1) {
      piece.mask = at::ones({rows, keys}, q.options().dtype(at::kBool)).triu_(1 + keys - rows);
    }
    const int64_t step = std::max<int64_t>(1, kChunkProbabilities / (per_head * rows * keys));
    for (int64_t head = 0; head < key_heads; head += step) {
      const int64_t heads = std::min(step, key_heads - head);
      const Cut of_q{row, rows, head, heads, per_head, head_dim};
      const Cut of_k{key, keys, head, heads, 1, head_dim};
      piece.q = of_q.Read(q);
      piece.k = of_k.Read(k);
      piece.v = of_k.Read(v);
      run(piece, of_q, of_k);
    }
  }
};

// State that a fused kernel's backward needs; undefined where products are used.
struct FusedState {
  Kernel kernel = Kernel::kProducts;
  at::Tensor queries, keys;  // ends of segments, int32
  at::Tensor y, lse, seed, offset;
};

// [tiles * rows, heads * head_dim] -> [tiles, heads, rows, head_dim], and back.
at::Tensor Tiles(const at::Tensor& x, int64_t rows, int64_t head_dim) {
  return x.view({-1, rows, x.size(1) / head_dim, head_dim}).transpose(1, 2);
}
at::Tensor Untiled(const at::Tensor& x, const at::Tensor& like) {
  return x.transpose(1, 2).reshape(like.sizes());
}

at::Tensor CudnnTilesForward(const Inputs& in, FusedState& state) {
  const auto tiles = [&](const at::Tensor& x) {
    return Tiles(x, in.segments.queries[1], in.head_dim);
  };
  auto made = at::_scaled_dot_product_cudnn_attention(
      tiles(in.q), tiles(in.k), tiles(in.v), /*attn_bias=*/std::nullopt,
      /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, /*is_causal=*/false);
  state.y = std::get<0>(made);
  state.lse = std::get<1>(made);
  state.seed = std::get<6>(made);
  state.offset = std::get<7>(made);
  return Untiled(state.y, in.q);
}

at::Tensor FlashForward(const Inputs& in, FusedState& state) {
  state.queries = EndsOnDevice(in.segments.queries, in.q);
  state.keys = in.segments.keys == in.segments.queries ? state.queries
                                                       : EndsOnDevice(in.segments.keys, in.q);
  at::Tensor debug;
  std::tie(state.y, state.lse, state.seed, state.offset, debug) = at::_flash_attention_forward(
      SplitHeads(in.q, in.head_dim), SplitHeads(in.k, in.head_dim), SplitHeads(in.v, in.head_dim),
      state.queries, state.keys, Longest(in.segments.queries), Longest(in.segments.keys),
      /*dropout_p=*/0.0, in.segments.causal, /*return_debug_mask=*/false);
  return state.y.view(in.q.sizes());
}

at::Tensor ProductsForward(const Inputs& in) {
  at::Tensor y = at::empty(in.q.sizes(), in.q.options());
  in.ForEachPiece([&](const Piece& piece, const Cut& of_q, const Cut&) {
    of_q.Write(at::bmm(piece.Probabilities(), piece.v), y);
  });
  return y;
}

at::Tensor Forward(const Inputs& in, FusedState& state) {
  state.kernel = KernelFor(in.q, in.segments, in.head_dim);
  switch (state.kernel) {
    case Kernel::kFlash:
      return FlashForward(in, state);
    case Kernel::kCudnnTiles:
      return CudnnTilesForward(in, state);
    case Kernel::kProducts:
      break;
  }
  return ProductsForward(in);
}

struct DeviceAttentionNode : SavingNode {
  Inputs in;
  FusedState fused;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = gradients[0].contiguous();
    switch (fused.kernel) {
      case Kernel::kFlash:
        return ByFlash(g);
      case Kernel::kCudnnTiles:
        return ByCudnnTiles(g);
      case Kernel::kProducts:
        break;
    }
    return ByProducts(g);
  }
  // But for the ends of segments, which other layers have too.
  void ForEachSaved(const Visit& visit) override {
    for (at::Tensor* saved : {&in.q, &in.k, &in.v, &fused.y, &fused.lse}) visit(*saved);
  }
  void release_variables() override {
    in = Inputs();
    fused = FusedState();
  }
  std::string name() const override { return "DeviceAttention"; }

 private:
  torch::autograd::variable_list ByFlash(const at::Tensor& g) const {
    const auto split = [&](const at::Tensor& x) { return SplitHeads(x, in.head_dim); };
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        split(g), split(in.q), split(in.k), split(in.v), fused.y, fused.lse, fused.queries,
        fused.keys, Longest(in.segments.queries), Longest(in.segments.keys), /*dropout_p=*/0.0,
        in.segments.causal, fused.seed, fused.offset);
    return {dq.reshape(in.q.sizes()), dk.reshape(in.k.sizes()), dv.reshape(in.v.sizes())};
  }
  torch::autograd::variable_list ByCudnnTiles(const at::Tensor& g) const {
    const int64_t rows = in.segments.queries[1];
    const auto tiles = [&](const at::Tensor& x) { return Tiles(x, rows, in.head_dim); };
    const auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
        tiles(g), tiles(in.q), tiles(in.k), tiles(in.v), fused.y, fused.lse, fused.seed,
        fused.offset, /*attn_bias=*/{}, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, rows, rows,
        /*dropout_p=*/0.0, /*is_causal=*/false);
    return {Untiled(dq, in.q), Untiled(dk, in.k), Untiled(dv, in.v)};
  }
  torch::autograd::variable_list ByProducts(const at::Tensor& g) const {
    const auto like = [](const at::Tensor& x) { return at::zeros(x.sizes(), x.options()); };
    at::Tensor gq = like(in.q), gk = like(in.k), gv = like(in.v);
    in.ForEachPiece([&](const Piece& piece, const Cut& of_q, const Cut& of_k) {
      const at::Tensor up = of_q.Read(g), p = piece.Probabilities();
      of_k.Write(at::bmm(p.transpose(1, 2), up), gv);
      const at::Tensor gp = at::bmm(up, piece.v.transpose(1, 2));
      const at::Tensor d = at::_softmax_backward_data(gp, p, -1, at::kFloat).mul_(piece.scale);
      of_q.Write(at::bmm(d, piece.k), gq);
      of_k.Write(at::bmm(d.transpose(1, 2), piece.q), gk);
    });
    return {gq, gk, gv};
  }
};

}  // namespace

at::Tensor DeviceAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionSegments& segments, int64_t head_dim) {
  const bool needs_node = NeedsNode({&q, &k, &v}, {});
  const BelowAutograd guard;
  const Inputs in{q.detach(), k.detach(), v.detach(), segments, head_dim};
  FusedState fused;
  at::Tensor y = Forward(in, fused);
  if (!needs_node) return y;
  auto node = std::make_shared<DeviceAttentionNode>();
  node->in = in;
  node->fused = fused;
  if (fused.y.defined()) y = y.detach();
  Record(y, node, {&q, &k, &v});
  return y;
}

}  // namespace equipoise::ops
