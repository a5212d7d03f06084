#include "balance/costs/half_time.h"

#include <algorithm>
#include <cmath>

#include "balance/costs/gemm_time.h"

namespace equipoise {
namespace {

// FlashAttention's backward recomputes the scores: five products instead of two.
constexpr double kFlashBackward = 2.5;
// The first FlashAttention takes about twice as long as the second (Dao, arXiv 2307.08691, section
// 4.1: 1.7 to 3 times).
constexpr double kFlash1Slowdown = 1.8;
// The third takes 1 / 1.5 to 1 / 2 of the second's time on H100 (Shah et al., arXiv 2407.08608,
// section 4.1), and cuDNN's kernels as long.
constexpr double kFlash3Slowdown = 1 / 1.6;
// They gain where the second is far from the peak, as on Hopper, and not on Ampere, which it was
// written for.
constexpr double kFlash2Suffices = 0.5;
// Keys of a query over which a kernel reaches half of the speed that it has over many (figures 4 to
// 7 there: sequences of 512 reach half of what those of 16k do; a causal query has half as many).
constexpr double kHalfSpeedKeys = 225;
// Bytes of a 16-bit score, read and written by softmax with its mask and by dropout, whose mask is
// a byte; in backward by the same two. The products' own traffic comes on top.
constexpr double kScoreBytes = 2, kScorePasses = 4 + 5, kScoreGradientPasses = 6 + 5;
// Kept: the softmax, dropout's mask and result (Korthikanti et al., arXiv 2205.05198, section 4.1).
constexpr double kKeptScoreBytes = 2 + 1 + 2;

// (query, key) pairs of a layer of the encoder; 0 for others.
double EncoderPairs(const HalfCost& half, const LayerLoad& load) {
  if (half.attention_flops_per_window_pair > 0) return load.window_pairs;
  return half.attention_flops_per_patch_pair > 0 ? load.patch_pairs : 0;
}

bool IsOfEncoder(const HalfCost& half) {
  return half.attention_flops_per_patch_pair > 0 || half.attention_flops_per_window_pair > 0;
}

// Scores of all (query, key) pairs: a causal mask is applied to the square.
double ScoresOf(const HalfCost& half, const LayerLoad& load) {
  const double encoder = EncoderPairs(half, load);
  const double causal = half.attention_flops_per_pair > 0 ? 2 * load.token_pairs : 0;
  return half.attention_heads * (encoder + causal);
}

struct CoreTimes {
  double forward_s = 0, backward_s = 0;
};

CoreTimes ScoresThroughMemory(const HalfCost& half, const LayerLoad& load,
                              const HalfSetting& setting) {
  const Cluster& cluster = setting.cluster;
  const double bandwidth = cluster.memory_bytes_per_s * cluster.memory_efficiency;
  const double scores = ScoresOf(half, load);
  const double flops = half.attention_flops_per_patch_pair * load.patch_pairs +
                       half.attention_flops_per_window_pair * load.window_pairs +
                       2 * half.attention_flops_per_pair * load.token_pairs;
  // Of two products: queries by keys, softmax by values.
  const double arithmetic = flops / 2 / (cluster.peak_flops * cluster.gemm_efficiency);
  const double product = std::max(arithmetic, kScoreBytes * scores / bandwidth) + cluster.launch_s;
  CoreTimes core;
  core.forward_s = 2 * product + kScorePasses * scores / bandwidth + 3 * cluster.launch_s;
  core.backward_s = 4 * product + kScoreGradientPasses * scores / bandwidth + 3 * cluster.launch_s;
  return core;
}

// How much longer attention takes for the same FLOPs because its sequences are short.
double Shortness(const HalfCost& half, const LayerLoad& load, const Cluster& cluster) {
  if (cluster.multiprocessors == 0) return 1;
  const bool encoder = IsOfEncoder(half);
  const double pairs = encoder ? EncoderPairs(half, load) : load.token_pairs;
  const auto rows = static_cast<double>(encoder ? load.patches : load.tokens);
  return pairs > 0 ? 1 + kHalfSpeedKeys * rows / pairs : 1;
}

double Slowdown(const HalfCost& half, const HalfSetting& setting) {
  const bool cudnn = setting.style.cudnn_tiles && half.attention_flops_per_patch_pair > 0;
  const AttentionKernel kernel = cudnn ? AttentionKernel::kFlash3 : setting.style.attention;
  if (kernel == AttentionKernel::kFlash1) return kFlash1Slowdown;
  const bool gains = setting.cluster.attention_efficiency < kFlash2Suffices;
  return kernel == AttentionKernel::kFlash3 && gains ? kFlash3Slowdown : 1;
}

// Of a rank's rows it keeps its own heads of queries, keys and values, and sends the others; the
// result of attention comes back likewise. All at once to all ranks, and nothing runs beside it.
double ExchangeSeconds(const HalfCost& half, const LayerLoad& load, const HalfSetting& setting) {
  if (half.attention_flops_per_pair == 0) return 0;  // an encoder has whole pictures
  const double queries = half.attention_flops_per_pair / 4 * static_cast<double>(load.tokens);
  const double ranks = setting.style.context;
  const double bytes =
      static_cast<double>(setting.element_bytes) * (ranks - 1) / ranks *
      (2 * queries + half.keys_values.At(load) + CopiedKeysValues(half, load, setting.style));
  const LinkModel& link = setting.context_link;
  return 2 * link.latency_s + (link.bytes_per_s > 0 ? bytes / link.bytes_per_s : 0);
}

CoreTimes CoreSeconds(const HalfCost& half, const LayerLoad& load, const HalfSetting& setting) {
  const double flops = half.AttentionFlops(load);
  if (flops <= 0) return {};
  const RunStyle& style = setting.style;
  const Cluster& cluster = setting.cluster;
  CoreTimes core;
  if (style.attention == AttentionKernel::kScores) {
    core = ScoresThroughMemory(half, load, setting);
  } else {
    core.forward_s = Slowdown(half, setting) * flops * Shortness(half, load, cluster) /
                     (cluster.peak_flops * cluster.attention_efficiency);
    core.backward_s = kFlashBackward * core.forward_s;
  }
  const double uneven = ContextSplitOf(half, style).work;
  core.forward_s *= uneven;
  core.backward_s *= uneven;
  if (style.context > 1 && style.program->exchanges_heads) {
    const double exchange_s = ExchangeSeconds(half, load, setting);
    core.forward_s += exchange_s;
    core.backward_s += exchange_s;
  } else if (style.context > 1) {
    // A ring: keys and values of one rank travel while those of another are used; their gradients
    // travel too.
    const double bytes = static_cast<double>(setting.element_bytes) * half.keys_values.At(load);
    const LinkModel& link = setting.context_link;
    const double step = link.latency_s + (link.bytes_per_s > 0 ? bytes / link.bytes_per_s : 0);
    const double steps = style.context - 1;
    core.forward_s = std::max(core.forward_s, steps * step);
    core.backward_s = std::max(core.backward_s, 2 * steps * step);
  }
  return core;
}

}  // namespace

ContextSplit ContextSplitOf(const HalfCost& half, const RunStyle& style) {
  if (style.context == 1 || !style.program->exchanges_heads || half.attention_flops_per_pair == 0)
    return {};
  const double head_dim = half.attention_flops_per_pair / 4 / half.attention_heads;
  return SplitOverContext(std::llround(half.attention_heads),
                          std::llround(half.keys_values.per_token / 2 / head_dim), style.context);
}

double CopiedKeysValues(const HalfCost& half, const LayerLoad& load, const RunStyle& style) {
  return (ContextSplitOf(half, style).copies - 1) * half.keys_values.At(load);
}

// Bytes for each element to round it to fp8, and to transpose a weight before, at the speed of
// element-wise kernels: by the times of both on an H200. They move 3 and 4.
constexpr double kFp8Bytes = 6.5, kTransposedBytes = 26;

// Seconds of x [m, k] times a weight [k, n] in fp8, and of rounding both, the weight `transposed`.
double Fp8Seconds(const GemmShape& shape, const Cluster& cluster, bool transposed) {
  Cluster faster = cluster;
  faster.peak_flops *= cluster.fp8_speedup;
  const double bandwidth = cluster.memory_bytes_per_s * cluster.memory_efficiency;
  const double weights = shape.k * shape.n;
  const double moved =
      kFp8Bytes * (shape.m * shape.k + weights) + (transposed ? kTransposedBytes * weights : 0);
  return GemmSeconds(shape, faster, 2) + moved / bandwidth +
         (transposed ? 3 : 2) * cluster.launch_s;
}

HalfTimes HalfSeconds(const HalfCost& half, const LayerLoad& load, const HalfSetting& setting) {
  const Cluster& cluster = setting.cluster;
  const RunStyle& style = setting.style;
  const Program& program = *style.program;
  const int64_t bytes = setting.element_bytes;
  const double bandwidth = cluster.memory_bytes_per_s * cluster.memory_efficiency;
  HalfTimes times;
  for (const Product& product : half.products) {
    const double rows = product.rows.At(load);
    if (rows <= 0) continue;
    const auto n = static_cast<double>(product.n), k = static_cast<double>(product.k);
    const GemmShape forward = {rows, n, k}, back = {rows, k, n};
    times.products_s += setting.fp8 ? Fp8Seconds(forward, cluster, /*transposed=*/false)
                                    : GemmSeconds(forward, cluster, bytes);
    times.input_gradient_s += setting.fp8 ? Fp8Seconds(back, cluster, /*transposed=*/true)
                                          : GemmSeconds(back, cluster, bytes);
    if (product.frozen) continue;
    times.weight_gradient_s +=
        GemmSeconds({n, k, rows}, cluster, bytes) + program.gradient_bytes * n * k / bandwidth;
  }
  double forward_passes = 0;
  for (const Pass& pass : half.passes) {
    double elements = pass.elements.At(load);
    if (elements <= 0) continue;
    if (pass.kind == PassKind::kQueries && style.attention == AttentionKernel::kScores) continue;
    if (pass.whole) elements /= setting.row_shares;
    const PassCost& cost = program.Of(pass.kind);
    const double moved = elements * static_cast<double>(bytes) / 2 / bandwidth;
    forward_passes += cost.forward_bytes * moved + cost.forward_kernels * cluster.launch_s;
    times.input_gradient_s +=
        cost.backward_bytes * moved + cost.backward_kernels * cluster.launch_s;
  }
  const CoreTimes core = CoreSeconds(half, load, setting);
  times.core_s = core.forward_s;
  times.forward_s = times.products_s + forward_passes + core.forward_s;
  if (style.selective == Selective::kOperators)
    times.again_s = times.products_s / 2 + forward_passes;
  if (style.selective == Selective::kCore && style.attention == AttentionKernel::kScores) {
    times.again_s = core.forward_s;
  }
  times.input_gradient_s += core.backward_s + times.again_s;
  return times;
}

double KeptScoreBytes(const HalfCost& half, const LayerLoad& load, const RunStyle& style) {
  if (style.attention != AttentionKernel::kScores || style.selective == Selective::kCore) return 0;
  return kKeptScoreBytes * ScoresOf(half, load);
}

}  // namespace equipoise
