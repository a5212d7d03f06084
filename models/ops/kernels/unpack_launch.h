#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "models/ops/kernels/unpack_rows.h"
#include "parallel/kernels/launchers.h"

namespace equipoise::ops {

// Weights that are held in fewer bits, in `dtype` (fp32, bf16 or fp16), by the row functions of
// unpack_rows.h and a launcher (parallel/kernels/launchers.h).

// [out, in] of codes [out, in] int8 and scales [out, 1] fp32.
template <class Launcher>
at::Tensor UnpackInt8(const Launcher& launch, const at::Tensor& codes, const at::Tensor& scales,
                      at::ScalarType dtype) {
  EQUIPOISE_CHECK(codes.is_contiguous() && scales.is_contiguous());
  at::Tensor y = at::empty(codes.sizes(), codes.options().dtype(dtype));
  const int64_t rows = codes.size(0), size = codes.size(1);
  const bool packed = size % kernels::kUnpacked == 0 && kernels::Packed(16, {codes, y});
  kernels::OnActivations(y, [&](auto type) {
    using T = decltype(type);
    launch(kernels::Int8Row<T>{kernels::Data<int8_t>(codes), kernels::Data<float>(scales),
                               kernels::MutableData<T>(y), size, packed},
           rows);
  });
  return y;
}

// What a weight in NF4 is made of, apart from where its elements go; all contiguous.
struct Nf4Tensors {
  at::Tensor codes;        // [32 a block] uint8
  at::Tensor scale_codes;  // [blocks] uint8
  at::Tensor largest;      // of groups of scales, of the whole matrix, fp32
  at::Tensor tables;       // [16 + 256] fp32: the values of NF4, then the dynamic map
  double offset = 0;
};

// [layout.total].
template <class Launcher>
at::Tensor UnpackNf4(const Launcher& launch, const Nf4Tensors& weight,
                     const kernels::Nf4Layout& layout, at::ScalarType dtype) {
  at::Tensor y = at::empty({layout.total}, weight.codes.options().dtype(dtype));
  const auto fits = [](int64_t size) { return size % kernels::kUnpacked == 0; };
  const bool packed = fits(layout.size) && fits(layout.first) && fits(layout.total) &&
                      kernels::Packed(16, {weight.codes, y});
  const auto* tables = kernels::Data<float>(weight.tables);
  kernels::OnActivations(y, [&](auto type) {
    using T = decltype(type);
    launch(kernels::Nf4Row<T>{kernels::Data<uint8_t>(weight.codes),
                              kernels::Data<uint8_t>(weight.scale_codes),
                              kernels::Data<float>(weight.largest), tables, tables + 16,
                              kernels::MutableData<T>(y), static_cast<float>(weight.offset), layout,
                              packed},
           layout.size == 0 ? 0 : (layout.total + layout.size - 1) / layout.size);
  });
  return y;
}

// What a weight in GPTQ's form is made of; all contiguous.
struct GptqCodes {
  at::Tensor codes;   // [out, in / 2, rounded up] uint8
  at::Tensor scales;  // [out, groups] fp32
  at::Tensor zeros;   // [out, groups] uint8
  at::Tensor groups;  // [in] int32
};

// [out, in].
template <class Launcher>
at::Tensor UnpackGptq(const Launcher& launch, const GptqCodes& weight, at::ScalarType dtype) {
  const int64_t rows = weight.codes.size(0), size = weight.groups.size(0);
  at::Tensor y = at::empty({rows, size}, weight.codes.options().dtype(dtype));
  const bool packed = size % kernels::kUnpacked == 0 && kernels::Packed(16, {weight.codes, y});
  kernels::OnActivations(y, [&](auto type) {
    using T = decltype(type);
    launch(kernels::GptqRow<T>{kernels::Data<uint8_t>(weight.codes),
                               kernels::Data<float>(weight.scales),
                               kernels::Data<uint8_t>(weight.zeros),
                               kernels::Data<int32_t>(weight.groups), kernels::MutableData<T>(y),
                               size, weight.scales.size(1), packed},
           rows);
  });
  return y;
}

}  // namespace equipoise::ops
