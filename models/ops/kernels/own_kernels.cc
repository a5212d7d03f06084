#include "models/ops/kernels/own_kernels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/ops/kernels/kernel_list.h"
#include "models/ops/kernels/row_kernels_image.h"

// An operator has one function, for the CPU and for CUDA: it allocates the results and gives a row
// function to a launcher, which runs it in a loop or by the kernel of its name.

namespace equipoise::ops {
namespace {

template <class Function>
struct NameOf;
#define EQUIPOISE_NAME(name, ...)               \
  template <>                                   \
  struct NameOf<__VA_ARGS__> {                  \
    static constexpr const char* kName = #name; \
  };
EQUIPOISE_ROW_KERNELS(EQUIPOISE_NAME)
#undef EQUIPOISE_NAME

struct HostLauncher {
  template <class Function>
  void operator()(const Function& function, int64_t rows) const {
    for (int64_t row = 0; row < rows; ++row) function.Run(row, LoneThread());
  }
};

struct ImageLauncher {
  std::shared_ptr<const KernelImage> image;

  template <class Function>
  void operator()(const Function& function, int64_t rows) const {
    constexpr unsigned kThreads = 256;  // as in row_kernels.cu
    image->Launch(NameOf<Function>::kName, static_cast<size_t>(rows), kThreads, &function);
  }
};

template <class T>
const T* Data(const at::Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}
template <class T>
T* MutableData(const at::Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

// Calls run(T()) with T = float or Bf16, by x's dtype.
template <class Run>
void OnType(const at::Tensor& x, const Run& run) {
  if (x.scalar_type() == at::kFloat) {
    run(float());
  } else {
    EQUIPOISE_CHECK(x.scalar_type() == at::kBFloat16, "no kernel for ", x.scalar_type());
    run(Bf16());
  }
}

// Whether rows of `size` elements can be moved in packs of 16 bytes.
bool Packed(int64_t size, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    if (address % 16 != 0 || size * tensor.element_size() % 16 != 0) return false;
  }
  return true;
}

template <class Launcher>
at::Tensor SwiGluOn(const Launcher& launch, const at::Tensor& gate_up) {
  const at::Tensor input = gate_up.contiguous();
  const int64_t n = input.size(-1) / 2;
  std::vector<int64_t> shape = input.sizes().vec();
  shape.back() = n;
  at::Tensor y = at::empty(shape, input.options());
  OnType(input, [&](auto type) {
    using T = decltype(type);
    launch(SwiGluRow<T>{Data<T>(input), MutableData<T>(y), n, Packed(n, {input, y})},
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
  OnType(input, [&](auto type) {
    using T = decltype(type);
    EQUIPOISE_CHECK(above.scalar_type() == input.scalar_type());
    launch(SwiGluGradientRow<T>{Data<T>(above), Data<T>(input), MutableData<T>(result), n,
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
  OnType(input, [&](auto type) {
    using T = decltype(type);
    const bool packed = Packed(half, {input, y, c, s}) && Packed(stride, {input});
    launch(RotaryRow<T>{Data<T>(input), MutableData<T>(y), Data<float>(c), Data<float>(s), stride,
                        static_cast<int>(size), static_cast<int>(half),
                        static_cast<float>(direction), packed},
           input.size(0));
  });
  return y;
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
}

TORCH_LIBRARY(equipoise, library) {
  library.def("rotary(Tensor x, Tensor cos, Tensor sin, float direction) -> Tensor");
  library.def("swi_glu(Tensor gate_up) -> Tensor");
  library.def("swi_glu_gradient(Tensor g, Tensor gate_up) -> Tensor");
}

TORCH_LIBRARY_IMPL(equipoise, CPU, library) { Register(library, HostLauncher()); }

}  // namespace

std::unique_ptr<KernelImage> LoadKernels() {
  std::vector<std::string> names;
#define EQUIPOISE_NAME(name, ...) names.emplace_back(#name);
  EQUIPOISE_ROW_KERNELS(EQUIPOISE_NAME)
#undef EQUIPOISE_NAME
  return std::make_unique<KernelImage>(RowKernelsImage(), names);
}

void UseKernels(std::unique_ptr<KernelImage> image) {
  // Never destroyed: backward threads of LibTorch run until the very end.
  auto* library = std::make_unique<torch::Library>(torch::Library::IMPL, "equipoise",
                                                   c10::DispatchKey::CUDA, __FILE__, __LINE__)
                      .release();
  Register(*library, ImageLauncher{std::move(image)});
}

}  // namespace equipoise::ops
