#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>

#include "configs/base/error.h"
#include "parallel/intra_op.h"
#include "parallel/kernels/fp16.h"
#include "parallel/kernels/kernel_image.h"
#include "parallel/kernels/row_team.h"
#include "parallel/streams.h"

// An operator of the program's own has one function, for the CPU and for CUDA: it allocates the
// results and gives a row function to a launcher, which runs it in a loop or by the kernel of its
// name.

namespace equipoise::kernels {

// kName: the kernel of a row function. LIST(EQUIPOISE_KERNEL_NAME) of each list of kernels, within
// namespace equipoise::kernels.
template <class Function>
struct NameOf;
#define EQUIPOISE_KERNEL_NAME(name, ...)        \
  template <>                                   \
  struct NameOf<__VA_ARGS__> {                  \
    static constexpr const char* kName = #name; \
  };
// The same as an element of a list of texts.
#define EQUIPOISE_KERNEL_TEXT(name, ...) #name,

struct HostLauncher {
  template <class Function>
  void operator()(const Function& function, int64_t rows) const {
    constexpr int64_t kRowsPerThread = 16;
    IntraOpFor(0, rows, kRowsPerThread, [&](int64_t begin, int64_t end) {
      typename Function::Shared memory;
      for (int64_t row = begin; row < end; ++row)
        RunRow(function, row, LoneThread<typename Function::Shared>{memory});
    });
  }
};

struct ImageLauncher {
  std::shared_ptr<const KernelImage> image;

  template <class Function>
  void operator()(const Function& function, int64_t rows) const {
    image->Launch(NameOf<Function>::kName, static_cast<size_t>(rows),
                  static_cast<unsigned>(kMostThreads), &function, ComputeStreamHandle(at::kCUDA));
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

// The same of activations, which may be Fp16 too.
template <class Run>
void OnActivations(const at::Tensor& x, const Run& run) {
  if (x.scalar_type() == at::kHalf) return run(Fp16());
  OnType(x, run);
}

// Whether rows of `size` elements of each tensor can be moved in packs of 16 bytes.
inline bool Packed(int64_t size, std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    if (address % 16 != 0 || size * tensor.element_size() % 16 != 0) return false;
  }
  return true;
}

}  // namespace equipoise::kernels
