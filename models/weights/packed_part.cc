#include "models/weights/packed_part.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "configs/base/error.h"
#include "models/ops/kernels/unpack_launch.h"
#include "parallel/intra_op.h"
#include "parallel/kernels/dynamic_map.h"
#include "parallel/kernels/own_operator.h"

// A rank's part of a packed matrix keeps the whole matrix's blocks that it touches: rows of blocks,
// cut to its columns when they are unpacked. So every mesh computes with the same values. A matrix
// whose rows are no whole number of blocks is one long row of them, and cannot be split.

namespace equipoise {
namespace {

constexpr int64_t kGrain = 1 << 12;  // fewest blocks or rows of 64 elements for a thread
constexpr int64_t kChunk = 1 << 22;  // elements that are unpacked at a time on a device
constexpr uint8_t kZeroCode = 7;     // of 0 in NF4

// The index of the value nearest to x.
uint8_t Nearest(const std::vector<float>& middles, float x) {
  return static_cast<uint8_t>(std::lower_bound(middles.begin(), middles.end(), x) -
                              middles.begin());
}

// The code of a scale, given as a part of its group's largest, as bitsandbytes' CPU code finds it:
// by a table over 65535 equal steps of [-1, 1]. Its GPU code takes the nearest value to x itself,
// which differs where a middle lies within half a step of x, and for scales near the mean.
uint8_t NestedCode(const std::vector<float>& middles, float x) {
  constexpr int kSteps = 65535;
  const float clamped = std::min(std::max(-1.0F, x), 1.0F);  // -1 for NaN
  const int step = static_cast<int>((clamped + 1.0F) * 0.5F * kSteps + 0.5F);
  return Nearest(middles, -1.0F + 2.0F * static_cast<float>(step) / kSteps);
}

std::vector<float> Middles(const std::vector<float>& values) {
  std::vector<float> middles;
  for (size_t i = 1; i < values.size(); ++i) middles.push_back((values[i - 1] + values[i]) / 2);
  return middles;
}

at::Tensor Table(const std::vector<float>& values, at::Device device) {
  return at::tensor(values, at::kFloat).to(device);
}

float LargestOf(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

class Nf4Weight : public PackedWeight {
 public:
  // Rows of blocks of the whole matrix, of which [first_row, + rows) and [first, + blocks) are
  // held.
  struct Layout {
    int64_t first_row = 0, rows = 1, first = 0, blocks = 0, whole_blocks = 0;
  };
  Nf4Weight(const Nf4Blocks& whole, const Layout& layout, int64_t first_column,
            std::vector<int64_t> shape, at::Device device)
      : layout_(layout), first_column_(first_column), shape_(std::move(shape)) {
    const auto part = [&](const at::Tensor& of_blocks, int64_t each) {
      return of_blocks.view({-1, layout.whole_blocks * each})
          .narrow(0, layout.first_row, layout.rows)
          .narrow(1, layout.first * each, layout.blocks * each)
          .contiguous()
          .to(device);
    };
    codes_ = part(whole.codes, kNf4Block / 2);
    absmax_codes_ = part(whole.absmax_codes, 1);
    absmax2_ = whole.absmax2.to(device);
    offset_ = whole.offset;
    tables_ = at::cat({Table(Nf4Values(), device), Table(DynamicMap(/*is_signed=*/true), device)});
  }

  at::Tensor Unpacked(at::ScalarType dtype) const override {
    using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const at::Tensor&, double, at::IntArrayRef, at::ScalarType);
    static const OwnOperator<Signature> own("equipoise::unpack_nf4");
    const kernels::Nf4Layout to = ResultLayout();
    if (own.IsFor(codes_)) {
      const std::vector<int64_t> layout = {to.size,  to.total,       to.stride,
                                           to.first, to.whole_first, to.whole_blocks};
      return own(codes_, absmax_codes_, absmax2_, tables_, double{offset_}, layout, dtype)
          .view(shape_);
    }
    if (codes_.is_cpu()) {
      const ops::Nf4Tensors weight = {codes_, absmax_codes_, absmax2_, tables_, offset_};
      return ops::UnpackNf4(kernels::HostLauncher(), weight, to, dtype).view(shape_);
    }
    return ByLibTorch(dtype);
  }

  int64_t bytes() const override {
    return codes_.numel() + absmax_codes_.numel() + 4 * absmax2_.numel() + 4;
  }

 private:
  kernels::Nf4Layout ResultLayout() const {
    if (first_column_ < 0) {  // one long row, in pieces
      constexpr int64_t kPiece = 2048;
      return {kPiece, shape_[0] * shape_[1], kPiece, 0, 0, kPiece / kNf4Block};
    }
    return {shape_[1],
            shape_[0] * shape_[1],
            layout_.blocks * kNf4Block,
            first_column_,
            layout_.first_row * layout_.whole_blocks + layout_.first,
            layout_.whole_blocks};
  }

  at::Tensor ByLibTorch(at::ScalarType dtype) const {
    const at::Tensor scales = Scales(), pairs = Pairs();
    at::Tensor all =
        at::empty({layout_.rows * layout_.blocks, kNf4Block}, codes_.options().dtype(dtype));
    const at::Tensor codes = codes_.view({-1, kNf4Block / 2});
    const int64_t step = kChunk / kNf4Block;
    for (int64_t begin = 0; begin < all.size(0); begin += step) {
      const int64_t count = std::min(step, all.size(0) - begin);
      const at::Tensor bytes = codes.narrow(0, begin, count).flatten().to(at::kInt);
      const at::Tensor values = pairs.index_select(0, bytes).view({count, kNf4Block});
      all.narrow(0, begin, count)
          .copy_(at::mul(values, scales.narrow(0, begin, count).unsqueeze(1)));
    }
    if (first_column_ < 0) {
      return all.flatten().narrow(0, 0, shape_[0] * shape_[1]).view(shape_);
    }
    const at::Tensor rows = all.view({layout_.rows, layout_.blocks * kNf4Block});
    return rows.narrow(1, first_column_, shape_[1]).contiguous();
  }

  // [256, 2]: the two values of each byte.
  at::Tensor Pairs() const {
    const at::Tensor values = tables_.narrow(0, 0, 16);
    const at::Tensor byte = at::arange(256, tables_.options().dtype(at::kInt));
    return at::stack({values.index_select(0, byte.bitwise_right_shift(4)),
                      values.index_select(0, byte.bitwise_and(15))},
                     1);
  }

  at::Tensor Scales() const {
    const at::TensorOptions whole = absmax2_.options().dtype(at::kLong);
    const at::Tensor row = at::arange(layout_.first_row, layout_.first_row + layout_.rows, whole);
    const at::Tensor block = at::arange(layout_.first, layout_.first + layout_.blocks, whole);
    const at::Tensor group = (row.unsqueeze(1) * layout_.whole_blocks + block.unsqueeze(0))
                                 .div_(kNf4Nested, "floor")
                                 .flatten();
    return tables_.narrow(0, 16, 256)
        .index_select(0, absmax_codes_.flatten().to(at::kInt))
        .mul_(absmax2_.index_select(0, group))
        .add_(offset_);
  }

  Layout layout_;
  int64_t first_column_;  // of the part, in the first block held; -1: one long row
  std::vector<int64_t> shape_;
  at::Tensor codes_, absmax_codes_, absmax2_;
  at::Tensor tables_;  // [16 + 256]: values of codes, the dynamic map
  float offset_ = 0;
};

// LLM.int8's weights: each row by its largest element (Dettmers et al. 2022, section 3.1).
class Int8Weight : public PackedWeight {
 public:
  Int8Weight(const at::Tensor& whole, const MatrixPart& part, at::Device device) {
    at::Tensor codes = at::empty(whole.sizes(), at::kChar);
    at::Tensor largest = at::empty({whole.size(0), 1}, at::kFloat);
    const auto* x = whole.const_data_ptr<float>();
    auto* out = codes.mutable_data_ptr<int8_t>();
    auto* rows = largest.mutable_data_ptr<float>();
    const int64_t columns = whole.size(1);
    IntraOpFor(0, whole.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        rows[r] = LargestOf(x + r * columns, columns);
        const float factor = rows[r] > 0 ? 127.0F / rows[r] : 0;
        for (int64_t c = r * columns; c < (r + 1) * columns; ++c) {
          out[c] = static_cast<int8_t>(std::nearbyint(x[c] * factor));
        }
      }
    });
    if (part.dim >= 0) codes = codes.narrow(part.dim, part.begin, part.shape[part.dim]);
    if (part.dim == 0) largest = largest.narrow(0, part.begin, part.shape[0]);
    codes_ = codes.contiguous().to(device);
    scales_ = largest.div(127.0F).contiguous().to(device);
  }

  at::Tensor Unpacked(at::ScalarType dtype) const override {
    static const OwnOperator<at::Tensor(const at::Tensor&, const at::Tensor&, at::ScalarType)> own(
        "equipoise::unpack_int8");
    if (own.IsFor(codes_)) return own(codes_, scales_, dtype);
    if (codes_.is_cpu()) return ops::UnpackInt8(kernels::HostLauncher(), codes_, scales_, dtype);
    if (dtype == at::kFloat) return at::mul(codes_.to(at::kFloat), scales_);
    at::Tensor all = at::empty(codes_.sizes(), codes_.options().dtype(dtype));
    const int64_t step = std::max<int64_t>(1, kChunk / codes_.size(1));
    for (int64_t begin = 0; begin < all.size(0); begin += step) {
      const int64_t count = std::min(step, all.size(0) - begin);
      all.narrow(0, begin, count)
          .copy_(at::mul(codes_.narrow(0, begin, count).to(at::kFloat),
                         scales_.narrow(0, begin, count)));
    }
    return all;
  }

  int64_t bytes() const override { return codes_.numel() + 4 * scales_.numel(); }

 private:
  at::Tensor codes_, scales_;  // [out, in] int8, [out, 1] fp32
};

Nf4Weight::Layout LayoutOf(const at::Tensor& whole, const MatrixPart& part,
                           const std::string& name) {
  const int64_t columns = whole.size(1);
  if (part.dim < 0)
    return {0, 1, 0, (whole.numel() + kNf4Block - 1) / kNf4Block,
            (whole.numel() + kNf4Block - 1) / kNf4Block};
  if (columns % kNf4Block != 0) {
    throw ConfigError(fmt::format(
        "model.base: {} has rows of {} elements, no multiple of {}: nf4 cannot be split over "
        "tensor ranks; use int8 or parallel.tensor: 1",
        name, columns, kNf4Block));
  }
  const int64_t blocks = columns / kNf4Block;
  if (part.dim == 0) return {part.begin, part.shape[0], 0, blocks, blocks};
  const int64_t first = part.begin / kNf4Block;
  const int64_t end = (part.begin + part.shape[1] + kNf4Block - 1) / kNf4Block;
  return {0, part.shape[0], first, end - first, blocks};
}

}  // namespace

const std::vector<float>& Nf4Values() {
  static const std::vector<float> kValues = {
      -1.0F,         -0.69619280F, -0.52507305F, -0.39491749F, -0.28444138F, -0.18477343F,
      -0.091050036F, 0.0F,         0.07958030F,  0.16093020F,  0.24611230F,  0.33791524F,
      0.44070983F,   0.56261700F,  0.72295684F,  1.0F};
  return kValues;
}

Nf4Blocks QuantizeNf4(const at::Tensor& matrix) {
  const at::Tensor flat = matrix.contiguous().flatten();
  const int64_t count = flat.numel(), blocks = (count + kNf4Block - 1) / kNf4Block;
  // Whole blocks: what lies behind the end is 0.
  at::Tensor codes = at::empty({blocks * kNf4Block / 2}, at::kByte);
  at::Tensor absmax = at::empty({blocks}, at::kFloat);
  const auto* x = flat.const_data_ptr<float>();
  auto* bytes = codes.mutable_data_ptr<uint8_t>();
  auto* largest = absmax.mutable_data_ptr<float>();
  const std::vector<float> middles = Middles(Nf4Values());
  IntraOpFor(0, blocks, kGrain / kNf4Block, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kNf4Block, here = std::min(kNf4Block, count - first);
      largest[block] = LargestOf(x + first, here);
      const float scale = std::max(largest[block], 1e-38F), factor = 1.0F / scale;
      for (int64_t i = 0; i < kNf4Block; i += 2) {
        // bitsandbytes divides in a block that is not full.
        const auto code = [&](int64_t at) {
          if (at >= here) return kZeroCode;
          const float value = x[first + at];
          return Nearest(middles, here < kNf4Block ? value / scale : value * factor);
        };
        bytes[(first + i) / 2] = static_cast<uint8_t>(code(i) << 4 | code(i + 1));
      }
    }
  });
  Nf4Blocks result;
  result.codes = codes;
  result.offset = absmax.mean().item<float>();
  const at::Tensor centred = absmax - result.offset;
  const auto* scales = centred.const_data_ptr<float>();
  result.absmax_codes = at::empty({blocks}, at::kByte);
  result.absmax2 = at::empty({(blocks + kNf4Nested - 1) / kNf4Nested}, at::kFloat);
  const std::vector<float> nested = Middles(DynamicMap(/*is_signed=*/true));
  for (int64_t first = 0; first < blocks; first += kNf4Nested) {
    const int64_t here = std::min(kNf4Nested, blocks - first);
    const float most = LargestOf(scales + first, here);
    result.absmax2.mutable_data_ptr<float>()[first / kNf4Nested] = most;
    const float factor = 1.0F / most;
    for (int64_t i = first; i < first + here; ++i) {
      result.absmax_codes.mutable_data_ptr<uint8_t>()[i] =
          most > 0 ? NestedCode(nested, scales[i] * factor) : 0;
    }
  }
  return result;
}

at::Tensor ScalesOf(const Nf4Blocks& blocks) {
  const at::Tensor group =
      at::arange(blocks.absmax_codes.numel(), at::kLong).div_(kNf4Nested, "floor");
  return Table(DynamicMap(/*is_signed=*/true), at::kCPU)
      .index_select(0, blocks.absmax_codes.to(at::kInt))
      .mul_(blocks.absmax2.index_select(0, group))
      .add_(blocks.offset);
}

std::shared_ptr<const PackedWeight> PackedPart(const at::Tensor& whole, Packing packing,
                                               const MatrixPart& part, at::Device device,
                                               const std::string& name) {
  EQUIPOISE_CHECK(whole.dim() == 2 && whole.is_cpu() && whole.scalar_type() == at::kFloat, name);
  if (packing == Packing::kInt8)
    return std::make_shared<Int8Weight>(whole.contiguous(), part, device);
  EQUIPOISE_CHECK(packing == Packing::kNf4, name);
  const Nf4Weight::Layout layout = LayoutOf(whole, part, name);
  const int64_t first_column =
      part.dim < 0 ? -1 : (part.dim == 1 ? part.begin - layout.first * kNf4Block : 0);
  return std::make_shared<Nf4Weight>(QuantizeNf4(whole), layout, first_column, part.shape, device);
}

}  // namespace equipoise
