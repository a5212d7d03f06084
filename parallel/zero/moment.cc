// Codes are read and written here by ATen's operators, on any device: a few at a time, as
// checkpoints and AdamW's steps by regions need them. On the host a step does the same within its
// one pass (adamw_on_host.cc), with the same bits.

#include "parallel/zero/moment.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

using kernels::kCodeBlock;

int64_t BlocksOf(int64_t size) { return (size + kCodeBlock - 1) / kCodeBlock; }

}  // namespace

Moment::Moment(int64_t numel, bool is_signed, const at::TensorOptions& kept)
    : is_signed_(is_signed) {
  if (kept.dtype() != at::kByte) {
    kept_ = at::zeros({numel}, kept);
    return;
  }
  EQUIPOISE_CHECK(numel % kCodeBlock == 0, numel, " elements");
  const kernels::CodeMap& map = kernels::DynamicCodes(is_signed);
  kept_ = at::full({numel}, static_cast<int64_t>(map.CodeOf(0)), kept);
  absmax_ = at::zeros({numel / kCodeBlock}, kept.dtype(at::kFloat));
  values_ = at::tensor(at::ArrayRef<float>(map.values), at::kFloat).to(kept.device());
  bounds_ = at::tensor(kernels::DynamicBounds(is_signed), at::kFloat).to(kept.device());
}

kernels::MomentCodes Moment::codes() const {
  EQUIPOISE_CHECK(is_codes());
  return {kept_.mutable_data_ptr<uint8_t>(), absmax_.mutable_data_ptr<float>(),
          &kernels::DynamicCodes(is_signed_)};
}

at::Tensor Moment::Read(int64_t begin, int64_t size, bool saved) const {
  EQUIPOISE_CHECK(begin % kCodeBlock == 0, "a range begins within a block, at ", begin);
  const int64_t blocks = BlocksOf(size);
  at::Tensor values = values_;
  if (saved && is_signed_) {
    values = values_.clone();
    values.narrow(0, 0, 1).fill_(-1.0);
  }
  const at::Tensor codes = kept_.narrow(0, begin, blocks * kCodeBlock).to(at::kInt);
  return values.index_select(0, codes)
      .view({blocks, kCodeBlock})
      .mul_(absmax_.narrow(0, begin / kCodeBlock, blocks).unsqueeze(1))
      .view({-1})
      .narrow(0, 0, size);
}

at::Tensor Moment::Numbers(int64_t begin, int64_t size) const {
  if (is_codes()) return Read(begin, size, /*saved=*/false);
  return kept_.narrow(0, begin, size).to(at::kFloat);
}

at::Tensor Moment::Saved(int64_t begin, int64_t size) const {
  return is_codes() ? Read(begin, size, /*saved=*/true) : kept_.narrow(0, begin, size);
}

void Moment::Set(int64_t begin, const at::Tensor& numbers) {
  const int64_t size = numbers.numel();
  if (!is_codes()) {
    kept_.narrow(0, begin, size).copy_(numbers);
    return;
  }
  EQUIPOISE_CHECK(begin % kCodeBlock == 0, "a range begins within a block, at ", begin);
  const int64_t blocks = BlocksOf(size);
  const at::Tensor whole =
      at::constant_pad_nd(numbers.to(kept_.device(), at::kFloat), {0, blocks * kCodeBlock - size})
          .view({blocks, kCodeBlock});
  const at::Tensor absmax = whole.abs().amax(1);
  absmax.masked_fill_(absmax.lt(kernels::kLeastAbsmax), 0.0);
  const at::Tensor unit = absmax.masked_fill(absmax.eq(0.0), 1.0).unsqueeze(1);
  const at::Tensor codes = at::bucketize(whole.div(unit), bounds_, /*out_int32=*/true);
  kept_.narrow(0, begin, blocks * kCodeBlock).copy_(codes.view({-1}));
  absmax_.narrow(0, begin / kCodeBlock, blocks).copy_(absmax);
}

}  // namespace equipoise
