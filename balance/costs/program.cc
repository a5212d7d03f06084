#include "balance/costs/program.h"

namespace equipoise {
namespace {

constexpr int kFp32 = 4;  // bytes

// In the order of PassKind. A 16-bit element costs 2 bytes a read or write. Backward of a norm
// reads input and gradient twice: for the input's gradient, which it writes, and for the weight's.
constexpr std::array<PassCost, kNumPassKinds> kOwnKernels = {{
    {4, 8, 1, 2},   // kNorm: fused (models/ops/norm.cc)
    {4, 10, 1, 2},  // kLayerNorm: ATen's native_layer_norm
    {4, 4, 1, 1},   // kRotary: an own kernel (models/ops/kernels)
    {6, 10, 1, 1},  // kGatedUnit: likewise
    {4, 6, 1, 1},   // kGelu
    {6, 6, 1, 1},   // kResidual: an addition; that of the two gradients
    {4, 8, 1, 3},   // kScale: product; a product, and sums over rows by an own kernel
    {4, 4, 1, 1},   // kCopy
    {4, 10, 1, 1},  // kEmbedding: rows gathered; added to fp32
    {2, 4, 1, 1},   // kLogits: own kernels: read for the loss; the gradient in their place
    {0, 28, 0, 3},  // kQueries: result times its gradient 4, fp32 gradients 12, q, k, v joined 12
}};

// What LibTorch's kernels move instead of the program's own.
constexpr std::array<PassCost, kNumPassKinds> WithoutOwnKernels() {
  auto passes = kOwnKernels;
  passes[static_cast<size_t>(PassKind::kRotary)] = {14, 14, 3, 3};
  passes[static_cast<size_t>(PassKind::kScale)] = {4, 12, 1, 3};  // two products and a sum
  passes[static_cast<size_t>(PassKind::kGatedUnit)] = {10, 22, 2, 5};
  // fp32 copy, log-softmax, exponentials; the gradient rounded.
  passes[static_cast<size_t>(PassKind::kLogits)] = {26, 6, 4, 2};
  return passes;
}

// Kernels fused by hand or by a compiler: each tensor is read and written once.
constexpr std::array<PassCost, kNumPassKinds> kPublishedSystems = {{
    {4, 8, 1, 2},    // kNorm
    {4, 8, 1, 2},    // kLayerNorm
    {4, 4, 1, 1},    // kRotary
    {6, 10, 1, 1},   // kGatedUnit
    {4, 6, 1, 1},    // kGelu
    {6, 6, 1, 1},    // kResidual
    {4, 8, 1, 2},    // kScale
    {4, 4, 1, 1},    // kCopy
    {4, 10, 1, 1},   // kEmbedding
    {18, 18, 3, 3},  // kLogits: fp32 copy, log-softmax; its gradient, rounded
    {0, 28, 0, 3},   // kQueries: result times its gradient 4, fp32 gradients 12, q, k, v joined 12
}};

}  // namespace

const Program& ThisProgram(bool own_kernels) {
  static constexpr Program kOwn = {
      .name = "this program",
      .passes = kOwnKernels,
      .gradient_bytes = 8,  // added by the product itself
      // Norm 4; gradient read; master and two moments both ways. A master is its two halves.
      .optimizer_bytes = 32,
      .master_bytes_moved = 0,
      .weight_bytes_moved = -4,  // no remainder, both ways
      .master_bytes = 2,         // the 16-bit remainder
      // Codes, with their scales, and the element (models/ops/kernels/unpack_rows.h): counted, not
      // measured. GPTQ's indices of groups come from the cache.
      .int8_bytes = 3,
      .nf4_bytes = 2.5,
      .gptq_bytes = 2.5,
      .widens_moments = false,
      .copies_logits = false,
      .fp32_whole_gradients = true,
      .shares_all_rows = false,
      .exchanges_heads = true,
      .scatters_boundaries = false,
      .blocking_transfers = false,
      .host_wait_s = 0,  // the GPU's stream waits
  };
  static constexpr Program kATen = [] {
    Program program = kOwn;
    program.name = "this program, LibTorch's kernels alone";
    program.passes = WithoutOwnKernels();
    // Joined: 6 + 10 (the remainder widened, the weight added); split again: 6 + 8 + 6.
    program.master_bytes_moved = 36;
    // Widened 6; elements numbered 24, hashed 216 and 240 (parallel/random_bits.cc), the hash
    // shifted and narrowed 28, added 12, the upper half written 6.
    program.weight_bytes_moved = 532;
    // What an H200 took longer (docs/gpu_runs), at the speed of element-wise kernels. GPTQ's codes
    // are unpacked as NF4's are, and were not measured.
    program.int8_bytes = 44;
    program.nf4_bytes = 76;
    program.gptq_bytes = 76;
    program.widens_moments = true;
    program.copies_logits = true;
    return program;
  }();
  return own_kernels ? kOwn : kATen;
}

const Program& PublishedSystems() {
  static constexpr Program kProgram = {
      .name = "published systems",
      .passes = kPublishedSystems,
      .gradient_bytes = 8,      // added by the product itself
      .optimizer_bytes = 40,    // as above, and the clipped gradient read and written
      .master_bytes_moved = 2,  // the weight written beside its master
      .weight_bytes_moved = -4,
      .master_bytes = 4,
      .widens_moments = true,
      .copies_logits = true,
      .fp32_whole_gradients = false,
      .shares_all_rows = true,
      .scatters_boundaries = true,
      .recomputes_elementwise = false,
      .blocking_transfers = true,
      .host_wait_s = 100e-6,
  };
  return kProgram;
}

double OptimizerStateBytes(const RunStyle& style, int64_t element_bytes) {
  const double bytes = 2 * style.moment_bytes;
  if (element_bytes == kFp32 || style.without_masters) return bytes;
  return bytes + (style.whole_masters ? kFp32 : style.program->master_bytes);
}

double OffloadedStateBytes(const RunStyle& style, int64_t element_bytes) {
  return OptimizerStateBytes(style, element_bytes) + static_cast<double>(element_bytes);
}

OffloadedMoves OffloadedBytesMoved(const RunStyle& style, int64_t element_bytes) {
  // The gradient is read, all that is kept is read and written.
  const double kept = OffloadedStateBytes(style, element_bytes);
  return {kFp32 + 2 * kept, kFp32, static_cast<double>(element_bytes)};
}

double OptimizerMovedBytes(const RunStyle& style, int64_t element_bytes) {
  // No own kernel knows codes. By LibTorch's, for each moment: codes widened 5, looked up 8, times
  // their scales 8; magnitudes 8, the largest 4, in units of it 8, their codes 8, narrowed 5,
  // kept 2.
  constexpr double kCodesMoved = 56;
  const bool codes = style.moment_bytes < 2;
  const Program& program = codes ? ThisProgram(/*own_kernels=*/false) : *style.program;
  double bytes = program.optimizer_bytes;
  // A whole master is updated as one in fp32 is; then read, and the weight written.
  if (element_bytes != kFp32)
    bytes += style.whole_masters     ? kFp32 + element_bytes
             : style.without_masters ? program.weight_bytes_moved
                                     : program.master_bytes_moved;
  if (codes) return bytes + 2 * kCodesMoved;
  if (style.moment_bytes == kFp32) return bytes;
  // Both moments, before and after the update.
  return bytes +
         4 * (program.widens_moments ? style.moment_bytes + kFp32 : style.moment_bytes - kFp32);
}

}  // namespace equipoise
