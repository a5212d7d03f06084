#include "models/weights/gptq_part.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "models/ops/kernels/unpack_launch.h"
#include "parallel/intra_op.h"
#include "parallel/kernels/own_operator.h"

// GPTQ's int4 weights (Frantar et al. 2023, "GPTQ: Accurate Post-Training Quantization for
// Generative Pre-trained Transformers"). A file has eight inputs of an output in an element. A
// rank's inputs may begin within one, and with act-order an input's group may be any, so that
// codes are packed anew, row by row, and each input keeps the index of its group.

namespace equipoise {
namespace {

constexpr int64_t kRows = 16;        // fewest rows for a thread; a cache line of a file's elements
constexpr int64_t kChunk = 1 << 22;  // elements that are unpacked at a time on a device
constexpr uint8_t kMiddle = 8;       // the zero of a symmetric range

uint8_t Nibble(int32_t word, int64_t at) {
  return static_cast<uint8_t>(static_cast<uint32_t>(word) >> (4 * at) & 15U);
}

// Two codes a byte [rows, columns / 2, rounded up], the first in the low bits.
at::Tensor PackPairs(const at::Tensor& codes) {
  const int64_t rows = codes.size(0), columns = codes.size(1), bytes = (columns + 1) / 2;
  at::Tensor packed = at::empty({rows, bytes}, at::kByte);
  const auto* from = codes.const_data_ptr<uint8_t>();
  auto* to = packed.mutable_data_ptr<uint8_t>();
  IntraOpFor(0, rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* in = from + row * columns;
      uint8_t* out = to + row * bytes;
      for (int64_t i = 0; i < columns / 2; ++i) {
        out[i] = static_cast<uint8_t>(in[2 * i] | in[2 * i + 1] << 4);
      }
      if (columns % 2 != 0) out[bytes - 1] = in[columns - 1];
    }
  });
  return packed;
}

class GptqWeight : public PackedWeight {
 public:
  // A part, on the CPU.
  GptqWeight(const GptqMatrix& part, at::Device device) : columns_(part.codes.size(1)) {
    codes_ = PackPairs(part.codes.contiguous()).to(device);
    scales_ = part.scales.contiguous().to(device);
    zeros_ = part.zeros.contiguous().to(device);
    groups_ = part.groups.contiguous().to(device);
  }

  at::Tensor Unpacked(at::ScalarType dtype) const override {
    using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const at::Tensor&, at::ScalarType);
    static const OwnOperator<Signature> own("equipoise::unpack_gptq");
    if (own.IsFor(codes_)) return own(codes_, scales_.to(at::kFloat), zeros_, groups_, dtype);
    if (codes_.is_cpu()) {
      return ops::UnpackGptq(kernels::HostLauncher(),
                             {codes_, scales_.to(at::kFloat), zeros_, groups_}, dtype);
    }
    const int64_t rows = codes_.size(0);
    at::Tensor all = at::empty({rows, columns_}, codes_.options().dtype(dtype));
    const int64_t step = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, columns_));
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t count = std::min(step, rows - begin);
      const auto of_inputs = [&](const at::Tensor& of_groups) {
        return of_groups.narrow(0, begin, count).to(at::kFloat).index_select(1, groups_);
      };
      const at::Tensor bytes = codes_.narrow(0, begin, count);
      const at::Tensor codes = at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, 2)
                                   .view({count, 2 * codes_.size(1)})
                                   .narrow(1, 0, columns_);
      all.narrow(0, begin, count)
          .copy_(codes.to(at::kFloat).sub_(of_inputs(zeros_)).mul_(of_inputs(scales_)));
    }
    return all;
  }

  int64_t bytes() const override {
    return static_cast<int64_t>(codes_.nbytes() + scales_.nbytes() + zeros_.nbytes() +
                                groups_.nbytes());
  }

 private:
  int64_t columns_;
  at::Tensor codes_;           // [out, in / 2, rounded up] uint8
  at::Tensor scales_, zeros_;  // [out, groups]
  at::Tensor groups_;          // [in] int32
};

}  // namespace

GptqMatrix UnpackGptq(const GptqTensors& tensors, const at::Tensor& rows, int zero_offset) {
  const int64_t in = tensors.g_idx.size(0), out = tensors.scales.size(1);
  const int64_t groups = tensors.scales.size(0), zero_words = tensors.qzeros.size(1);
  GptqMatrix matrix;
  matrix.codes = at::empty({rows.size(0), in}, at::kByte);
  matrix.zeros = at::empty({rows.size(0), groups}, at::kByte);
  matrix.scales = tensors.scales.index_select(1, rows).t().contiguous();
  matrix.groups = tensors.g_idx;
  const auto* weight = tensors.qweight.const_data_ptr<int32_t>();
  const auto* zeros = tensors.qzeros.const_data_ptr<int32_t>();
  const auto* of_row = rows.const_data_ptr<int64_t>();
  auto* codes = matrix.codes.mutable_data_ptr<uint8_t>();
  auto* zero_codes = matrix.zeros.mutable_data_ptr<uint8_t>();
  IntraOpFor(0, rows.size(0), kRows, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kRows) {
      const int64_t last = std::min(end, first + kRows);
      for (int64_t i = 0; i < in; ++i) {  // the inner loop reads neighbours
        for (int64_t row = first; row < last; ++row) {
          codes[row * in + i] = Nibble(weight[i / 8 * out + of_row[row]], i % 8);
        }
      }
    }
    for (int64_t row = begin; row < end; ++row) {
      const int64_t column = of_row[row];
      for (int64_t g = 0; g < groups; ++g) {
        zero_codes[row * groups + g] = static_cast<uint8_t>(
            Nibble(zeros[g * zero_words + column / 8], column % 8) + zero_offset);
      }
    }
  });
  return matrix;
}

GptqMatrix RoundToGptq(const at::Tensor& matrix, const GptqForm& form) {
  EQUIPOISE_CHECK(matrix.dim() == 2 && matrix.is_cpu() && matrix.scalar_type() == at::kFloat);
  const int64_t in = matrix.size(1), groups = form.Groups(in);
  const int64_t size = form.group_size < 0 ? in : std::min(form.group_size, in);
  // Whole groups: what lies behind the last input is 0.
  at::Tensor padded = at::zeros({matrix.size(0), groups * size}, at::kFloat);
  padded.narrow(1, 0, in).copy_(matrix);
  const at::Tensor grouped = padded.view({matrix.size(0), groups, size});
  GptqMatrix rounded;
  rounded.scales = grouped.abs().amax(2).div_(kMiddle - 1).to(at::kHalf);
  rounded.zeros = at::full(rounded.scales.sizes(), kMiddle, at::kByte);
  rounded.groups = at::arange(in, at::kInt).div_(size, "floor");
  const at::Tensor scales = rounded.scales.to(at::kFloat).clamp_min_(1e-30).unsqueeze(2);
  rounded.codes = at::clamp(grouped.div(scales).round_().add_(kMiddle), 0, 15)
                      .to(at::kByte)
                      .flatten(1)
                      .narrow(1, 0, in)
                      .contiguous();
  return rounded;
}

std::shared_ptr<const PackedWeight> GptqPart(const GptqMatrix& whole, const MatrixPart& part,
                                             at::Device device) {
  GptqMatrix mine = whole;
  if (part.dim == 0) {
    for (at::Tensor* of_rows : {&mine.codes, &mine.zeros, &mine.scales}) {
      *of_rows = of_rows->narrow(0, part.begin, part.shape[0]);
    }
  } else if (part.dim == 1) {
    mine.codes = whole.codes.narrow(1, part.begin, part.shape[1]);
    mine.groups = whole.groups.narrow(0, part.begin, part.shape[1]);
  }
  if (mine.groups.numel() > 0) {
    const int64_t first = mine.groups.min().item<int32_t>();
    const int64_t count = mine.groups.max().item<int32_t>() + 1 - first;
    mine.zeros = mine.zeros.narrow(1, first, count);
    mine.scales = mine.scales.narrow(1, first, count);
    mine.groups = at::sub(mine.groups, first);
  }
  return std::make_shared<GptqWeight>(mine, device);
}

}  // namespace equipoise
