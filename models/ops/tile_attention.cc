#include "models/ops/tile_attention.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "models/ops/row_dispatch.h"
#include "models/ops/run_copy.h"

namespace equipoise::ops {
namespace {

// Attention probabilities that are in memory at a time.
constexpr int64_t kChunkProbabilities = int64_t{1} << 23;

}  // namespace

at::Tensor SplitHeads(const at::Tensor& x, int64_t head_dim) {
  return x.view({x.size(0), x.size(1), -1, head_dim}).transpose(1, 2);
}

TilesByProducts::TilesByProducts(const at::Tensor& q)
    : tiles_(q.size(0)),
      heads_(q.size(1)),
      rows_(q.size(2)),
      head_dim_(q.size(3)),
      scale_(1 / std::sqrt(static_cast<double>(head_dim_))),
      // In fp32 for fp16: scores before they are scaled may exceed its range, and few CPUs have
      // units for it.
      dtype_(q.scalar_type() == at::kHalf ? at::kFloat : q.scalar_type()) {}

// Calls run(begin, count) for ranges of tiles.
template <class Run>
void TilesByProducts::ForChunks(const Run& run) const {
  const int64_t step = std::max<int64_t>(1, kChunkProbabilities / (heads_ * rows_ * rows_));
  for (int64_t begin = 0; begin < tiles_; begin += step) {
    run(begin, std::min(step, tiles_ - begin));
  }
}

// Calls run(rows) for ranges of the rows of scores of some tiles, one for each thread.
template <class Run>
void TilesByProducts::ForScores(const at::Tensor& scores, const Run& run) const {
  ForRows(scores.size(0) * rows_, rows_, [&](int64_t begin, int64_t end) {
    run(Rows{begin, end, rows_, rows_});
  });
}

// [count * heads, rows, head_dim]
at::Tensor TilesByProducts::Cut(const at::Tensor& t, int64_t begin, int64_t count) const {
  const at::Tensor tiles = t.narrow(0, begin, count);
  at::Tensor cut = at::empty(tiles.sizes(), tiles.options());
  CopyRuns(tiles, cut);
  return cut.view({-1, rows_, head_dim_}).to(dtype_);
}

// [count * heads, rows, rows]
at::Tensor TilesByProducts::Probabilities(const at::Tensor& q, const at::Tensor& k) const {
  at::Tensor scores = at::bmm(q, k.transpose(1, 2));
  if (dtype_ != at::kBFloat16)
    return at::_softmax(scores.mul_(scale_), -1, /*half_to_float=*/false);
  ForScores(scores, [&](const Rows& rows) {
    std::vector<float> memory(static_cast<size_t>(SoftmaxMemory(rows_)));
    SoftmaxRows(rows, MutableData<Bf16>(scores), static_cast<float>(scale_), memory.data());
  });
  return scores;
}

// The gradient of the scores for that of the probabilities p.
at::Tensor TilesByProducts::ScoreGradients(at::Tensor g, const at::Tensor& p) const {
  if (dtype_ != at::kBFloat16)
    return at::_softmax_backward_data(g, p, -1, p.scalar_type()).mul_(scale_);
  ForScores(g, [&](const Rows& rows) {
    SoftmaxGradientRows(rows, Data<Bf16>(p), static_cast<float>(scale_), MutableData<Bf16>(g));
  });
  return g;
}

at::Tensor TilesByProducts::Result(const at::Tensor& like) const {
  return at::empty({tiles_, rows_, heads_ * head_dim_}, like.options());
}

// `t`, as Cut() returns, to tiles of `result`.
void TilesByProducts::Store(const at::Tensor& t, int64_t begin, int64_t count,
                            const at::Tensor& result) const {
  CopyRuns(t.view({count, heads_, rows_, head_dim_}),
           SplitHeads(result.narrow(0, begin, count), head_dim_));
}

at::Tensor TilesByProducts::Forward(const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v) const {
  at::Tensor y = Result(q);
  ForChunks([&](int64_t begin, int64_t count) {
    const at::Tensor p = Probabilities(Cut(q, begin, count), Cut(k, begin, count));
    Store(at::bmm(p, Cut(v, begin, count)), begin, count, y);
  });
  return y;
}

std::vector<at::Tensor> TilesByProducts::Backward(const at::Tensor& q, const at::Tensor& k,
                                                  const at::Tensor& v, const at::Tensor& g) const {
  std::vector<at::Tensor> results = {Result(q), Result(k), Result(v)};
  ForChunks([&](int64_t begin, int64_t count) {
    const at::Tensor qs = Cut(q, begin, count), ks = Cut(k, begin, count);
    const at::Tensor gs = Cut(g, begin, count), p = Probabilities(qs, ks);
    Store(at::bmm(p.transpose(1, 2), gs), begin, count, results[2]);
    const at::Tensor d = ScoreGradients(at::bmm(gs, Cut(v, begin, count).transpose(1, 2)), p);
    Store(at::bmm(d, ks), begin, count, results[0]);
    Store(at::bmm(d.transpose(1, 2), qs), begin, count, results[1]);
  });
  return results;
}

}  // namespace equipoise::ops
