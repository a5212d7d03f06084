#include "models/ops/kernels/own_kernels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/ops/kernels/dropout_launch.h"
#include "models/ops/kernels/kernel_list.h"
#include "models/ops/kernels/row_kernels_image.h"
#include "models/ops/kernels/unpack_launch.h"
#include "parallel/kernels/launchers.h"

namespace equipoise::kernels {
EQUIPOISE_ROW_KERNELS(EQUIPOISE_KERNEL_NAME)
}  // namespace equipoise::kernels

namespace equipoise::ops {
namespace {

using kernels::Data;
using kernels::MutableData;
using kernels::OnActivations;
using kernels::Packed;

template <class Launcher>
at::Tensor SwiGluOn(const Launcher& launch, const at::Tensor& gate_up) {
  const at::Tensor input = gate_up.contiguous();
  const int64_t n = input.size(-1) / 2;
  std::vector<int64_t> shape = input.sizes().vec();
  shape.back() = n;
  at::Tensor y = at::empty(shape, input.options());
  OnActivations(input, [&](auto type) {
    using T = decltype(type);
    launch(kernels::SwiGluRow<T>{Data<T>(input), MutableData<T>(y), n, Packed(n, {input, y})},
           n == 0 ? 0 : y.numel() / n);
  });
  return y;
}

template <class Launcher>
at::Tensor SwiGluGradientOn(const Launcher& launch, const at::Tensor& g,
                            const at::Tensor& gate_up) {
  const at::Tensor above = g.contiguous(), input = gate_up.contiguous();
  const int64_t n = input.size(-1) / 2;
  at::Tensor result = at::empty_like(input);
  OnActivations(input, [&](auto type) {
    using T = decltype(type);
    EQUIPOISE_CHECK(above.scalar_type() == input.scalar_type());
    launch(kernels::SwiGluGradientRow<T>{Data<T>(above), Data<T>(input), MutableData<T>(result), n,
                                         Packed(n, {above, input, result})},
           n == 0 ? 0 : above.numel() / n);
  });
  return result;
}

template <class Launcher>
at::Tensor RotaryOn(const Launcher& launch, const at::Tensor& x, const at::Tensor& cos,
                    const at::Tensor& sin, double direction) {
  const at::Tensor input = x.stride(1) == 1 ? x : x.contiguous();
  const at::Tensor c = cos.contiguous(), s = sin.contiguous();
  EQUIPOISE_CHECK(c.scalar_type() == at::kFloat && s.scalar_type() == at::kFloat);
  const int64_t size = input.size(1), half = c.size(1), stride = input.stride(0);
  EQUIPOISE_CHECK(c.sizes() == s.sizes() && c.size(0) == input.size(0) && size % (2 * half) == 0);
  at::Tensor y = at::empty(input.sizes(), input.options());
  OnActivations(input, [&](auto type) {
    using T = decltype(type);
    const bool packed = Packed(half, {input, y, c, s}) && Packed(stride, {input});
    launch(kernels::RotaryRow<T>{Data<T>(input), MutableData<T>(y), Data<float>(c), Data<float>(s),
                                 stride, static_cast<int>(size), static_cast<int>(half),
                                 static_cast<float>(direction), packed},
           input.size(0));
  });
  return y;
}

// Of logits [rows, n] and their targets.
void CheckLogits(const at::Tensor& logits, const at::Tensor& ids) {
  EQUIPOISE_CHECK(logits.dim() == 2 && logits.stride(1) == 1);
  EQUIPOISE_CHECK(ids.scalar_type() == at::kLong && ids.is_contiguous() &&
                  ids.numel() == logits.size(0));
}

template <class Launcher>
at::Tensor SoftmaxStatisticsOn(const Launcher& launch, const at::Tensor& logits,
                               const at::Tensor& ids) {
  CheckLogits(logits, ids);
  const int64_t rows = logits.size(0);
  at::Tensor statistics = at::empty({3, rows}, logits.options().dtype(at::kFloat));
  OnActivations(logits, [&](auto type) {
    using T = decltype(type);
    launch(kernels::SoftmaxStatisticsRow<T>{Data<T>(logits), Data<int64_t>(ids),
                                            MutableData<float>(statistics), rows, logits.size(1),
                                            logits.stride(0)},
           rows);
  });
  return statistics;
}

// The arguments of cross_entropy_gradient_.
struct GradientCall {
  at::Tensor logits, ids, statistics;
  std::optional<at::Tensor> weights;
  double scale;
};

template <class Launcher>
void CrossEntropyGradientOn(const Launcher& launch, const GradientCall& call) {
  const auto& [logits, ids, statistics, weights, scale] = call;
  CheckLogits(logits, ids);
  const int64_t rows = logits.size(0);
  EQUIPOISE_CHECK(statistics.scalar_type() == at::kFloat && statistics.is_contiguous() &&
                  statistics.numel() == 3 * rows);
  EQUIPOISE_CHECK(!weights || (weights->scalar_type() == at::kFloat && weights->is_contiguous() &&
                               weights->numel() == rows));
  OnActivations(logits, [&](auto type) {
    using T = decltype(type);
    launch(kernels::CrossEntropyGradientRow<T>{MutableData<T>(call.logits), Data<int64_t>(call.ids),
                                               Data<float>(call.statistics),
                                               call.weights ? Data<float>(*call.weights) : nullptr,
                                               rows, call.logits.size(1), call.logits.stride(0),
                                               static_cast<float>(call.scale)},
           rows);
  });
}

template <class Launcher>
std::tuple<at::Tensor, at::Tensor> Fp8RowsOn(const Launcher& launch, const at::Tensor& x) {
  EQUIPOISE_CHECK(x.dim() == 2 && x.scalar_type() == at::kBFloat16);
  const at::Tensor input = x.stride(1) == 1 ? x : x.contiguous();
  const int64_t rows = input.size(0), size = input.size(1), stride = input.stride(0);
  at::Tensor codes = at::empty({rows, size}, input.options().dtype(at::kFloat8_e4m3fn));
  at::Tensor scales = at::empty({rows, 1}, input.options().dtype(at::kFloat));
  const bool packed = Packed(size, {input, codes}) && Packed(stride, {input});
  launch(
      kernels::Fp8Row<kernels::Bf16>{Data<kernels::Bf16>(input), MutableData<kernels::Fp8>(codes),
                                     MutableData<float>(scales), size, stride, packed},
      rows);
  return {codes, scales};
}

template <class Launcher>
at::Tensor ScaledOn(const Launcher& launch, const std::optional<at::Tensor>& base,
                    const at::Tensor& x, const at::Tensor& scale) {
  const at::Tensor input = x.contiguous(), factor = scale.contiguous();
  const at::Tensor added = base ? base->contiguous() : at::Tensor();
  const int64_t size = input.size(-1);
  EQUIPOISE_CHECK(factor.numel() == size && factor.scalar_type() == input.scalar_type());
  EQUIPOISE_CHECK(!base ||
                  (added.sizes() == input.sizes() && added.scalar_type() == input.scalar_type()));
  at::Tensor y = at::empty(input.sizes(), input.options());
  const bool packed =
      kernels::Packed(size, {input, factor, y}) && (!base || kernels::Packed(size, {added}));
  OnActivations(input, [&](auto type) {
    using T = decltype(type);
    launch(kernels::ScaledRow<T>{base ? Data<T>(added) : nullptr, Data<T>(input), Data<T>(factor),
                                 MutableData<T>(y), size, packed},
           size == 0 ? 0 : input.numel() / size);
  });
  return y;
}

// The arguments of column_sums.
struct ColumnSumsCall {
  at::Tensor g;
  std::optional<at::Tensor> x, mean, rstd;
  bool plain;
};

template <class Launcher>
at::Tensor ColumnSumsOn(const Launcher& launch, const ColumnSumsCall& call) {
  EQUIPOISE_CHECK(call.g.dim() == 2);
  const at::Tensor g = call.g.stride(1) == 1 ? call.g : call.g.contiguous();
  const int64_t rows = g.size(0), columns = g.size(1), stride = g.stride(0);
  const auto beside = [&](const std::optional<at::Tensor>& given, int64_t elements,
                          at::ScalarType dtype) {
    if (!given) return at::Tensor();
    EQUIPOISE_CHECK(given->numel() == elements && given->scalar_type() == dtype);
    return given->contiguous();
  };
  const at::Tensor x = beside(call.x, rows * columns, g.scalar_type());
  const at::Tensor mean = beside(call.mean, rows, at::kFloat);
  const at::Tensor rstd = beside(call.rstd, rows, at::kFloat);
  const int64_t chunks = kernels::PartsOf(rows, kernels::kChunkRows), outputs = call.plain ? 2 : 1;
  at::Tensor sums = at::empty({outputs, chunks, columns}, g.options().dtype(at::kFloat));
  const bool packed = kernels::Packed(columns, {g, sums}) && kernels::Packed(stride, {g}) &&
                      (!x.defined() || kernels::Packed(columns, {x}));
  const auto floats = [](const at::Tensor& t) {
    return t.defined() ? kernels::Data<float>(t) : nullptr;
  };
  auto* to = kernels::MutableData<float>(sums);
  OnActivations(g, [&](auto type) {
    using T = decltype(type);
    launch(kernels::ColumnSumRow<T>{Data<T>(g), stride, x.defined() ? Data<T>(x) : nullptr,
                                    floats(mean), floats(rstd), to,
                                    call.plain ? to + chunks * columns : nullptr, rows, columns,
                                    packed},
           chunks * kernels::PartsOf(columns, kernels::kTeamColumns<T>));
  });
  return chunks == 1 ? sums.select(1, 0) : at::sum(sums, 1);
}

// `layout`: kernels::Nf4Layout's members in their order.
template <class Launcher>
at::Tensor UnpackNf4On(const Launcher& launch, const Nf4Tensors& weight, at::IntArrayRef layout,
                       at::ScalarType dtype) {
  EQUIPOISE_CHECK(layout.size() == 6);
  return UnpackNf4(launch, weight,
                   {layout[0], layout[1], layout[2], layout[3], layout[4], layout[5]}, dtype);
}

template <class Launcher>
void Register(torch::Library& library, const Launcher& launch) {
  library.impl("swi_glu", [launch](const at::Tensor& x) { return SwiGluOn(launch, x); });
  library.impl("swi_glu_gradient", [launch](const at::Tensor& g, const at::Tensor& x) {
    return SwiGluGradientOn(launch, g, x);
  });
  library.impl("rotary",
               [launch](const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                        double direction) { return RotaryOn(launch, x, cos, sin, direction); });
  library.impl("softmax_statistics", [launch](const at::Tensor& logits, const at::Tensor& ids) {
    return SoftmaxStatisticsOn(launch, logits, ids);
  });
  library.impl("unpack_int8",
               [launch](const at::Tensor& codes, const at::Tensor& scales, at::ScalarType dtype) {
                 return UnpackInt8(launch, codes, scales, dtype);
               });
  library.impl("unpack_nf4", [launch](const at::Tensor& codes, const at::Tensor& scale_codes,
                                      const at::Tensor& largest, const at::Tensor& tables,
                                      double offset, at::IntArrayRef layout, at::ScalarType dtype) {
    return UnpackNf4On(launch, {codes, scale_codes, largest, tables, offset}, layout, dtype);
  });
  library.impl("unpack_gptq",
               [launch](const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& zeros,
                        const at::Tensor& groups, at::ScalarType dtype) {
                 return UnpackGptq(launch, {codes, scales, zeros, groups}, dtype);
               });
  library.impl("scaled",
               [launch](const std::optional<at::Tensor>& base, const at::Tensor& x,
                        const at::Tensor& scale) { return ScaledOn(launch, base, x, scale); });
  library.impl("dropped",
               [launch](const at::Tensor& x, int64_t key, int64_t row, int64_t column, double p) {
                 return DroppedOn(launch, x, {p, static_cast<uint64_t>(key), row, column});
               });
  library.impl("column_sums", [launch](const at::Tensor& g, const std::optional<at::Tensor>& x,
                                       const std::optional<at::Tensor>& mean,
                                       const std::optional<at::Tensor>& rstd, bool plain) {
    return ColumnSumsOn(launch, {g, x, mean, rstd, plain});
  });
  library.impl("fp8_rows", [launch](const at::Tensor& x) { return Fp8RowsOn(launch, x); });
  library.impl(
      "cross_entropy_gradient_",
      [launch](const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& statistics,
               const std::optional<at::Tensor>& weights, double scale) {
        CrossEntropyGradientOn(launch, {logits, ids, statistics, weights, scale});
      });
}

TORCH_LIBRARY_FRAGMENT(equipoise, library) {
  library.def("rotary(Tensor x, Tensor cos, Tensor sin, float direction) -> Tensor");
  library.def("softmax_statistics(Tensor logits, Tensor ids) -> Tensor");
  library.def(
      "cross_entropy_gradient_(Tensor(a!) logits, Tensor ids, Tensor statistics, "
      "Tensor? weights, float scale) -> ()");
  library.def("column_sums(Tensor g, Tensor? x, Tensor? mean, Tensor? rstd, bool plain) -> Tensor");
  library.def("scaled(Tensor? base, Tensor x, Tensor scale) -> Tensor");
  library.def("dropped(Tensor x, int key, int row, int column, float p) -> Tensor");
  library.def("fp8_rows(Tensor x) -> (Tensor, Tensor)");
  library.def("unpack_int8(Tensor codes, Tensor scales, ScalarType dtype) -> Tensor");
  library.def(
      "unpack_nf4(Tensor codes, Tensor scale_codes, Tensor largest, Tensor tables, float offset, "
      "int[] layout, ScalarType dtype) -> Tensor");
  library.def(
      "unpack_gptq(Tensor codes, Tensor scales, Tensor zeros, Tensor groups, ScalarType dtype) -> "
      "Tensor");
  library.def("swi_glu(Tensor gate_up) -> Tensor");
  library.def("swi_glu_gradient(Tensor g, Tensor gate_up) -> Tensor");
}

TORCH_LIBRARY_IMPL(equipoise, CPU, library) { Register(library, kernels::HostLauncher()); }

}  // namespace

std::unique_ptr<KernelImage> LoadKernels() {
  const std::vector<std::string> names = {EQUIPOISE_ROW_KERNELS(EQUIPOISE_KERNEL_TEXT)};
  return std::make_unique<KernelImage>(RowKernelsImage(), names);
}

void UseKernels(std::unique_ptr<KernelImage> image) {
  // Never destroyed: backward threads of LibTorch run until the very end.
  auto* library = std::make_unique<torch::Library>(torch::Library::IMPL, "equipoise",
                                                   c10::DispatchKey::CUDA, __FILE__, __LINE__)
                      .release();
  Register(*library, kernels::ImageLauncher{std::move(image)});
}

}  // namespace equipoise::ops
