#include "models/ops/matrix_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/record_function.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "configs/base/error.h"
#include "models/ops/run_copy.h"

namespace equipoise::ops {
namespace {

// A product of oneDNN's C API, versions 1 to 3, for matrices by rows: c = alpha op(a) op(b) +
// beta c; 0 where it succeeds. dnnl_sgemm() is one of fp32, dnnl_gemm_bf16bf16f32(), which is
// exported for oneDNN's own tests, of bf16 with sums in fp32. It divides its work over OpenMP's
// threads, which are LibTorch's: both libraries share one libgomp. No thread
// that calls it may run a signal handler (trainer/common/signal_thread.h).
template <class T>
using Gemm = int (*)(char op_a, char op_b, int64_t m, int64_t n, int64_t k, float alpha, const T* a,
                     int64_t lda, const T* b, int64_t ldb, float beta, float* c, int64_t ldc);

bool CpuPrefersOneDnn() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

bool CpuHasBf16Dots() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

struct OneDnnGemms {
  Gemm<float> fp32 = nullptr;
  Gemm<at::BFloat16> bf16 = nullptr;  // only where the CPU has instructions for it
};

OneDnnGemms OpenOneDnn() {
#ifdef __SANITIZE_ADDRESS__
  return {};  // whose dlopen() refuses RTLD_DEEPBIND
#endif
  if (!CpuPrefersOneDnn()) return {};
  for (const char* name : {"libdnnl.so.3", "libdnnl.so.2"}) {
    // LibTorch holds a oneDNN of another version, some of whose symbols it exports: without
    // RTLD_DEEPBIND this one would take them for its own.
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == nullptr) continue;
    void* sgemm = dlsym(library, "dnnl_sgemm");
    if (sgemm == nullptr) continue;
    void* bf16 = CpuHasBf16Dots() ? dlsym(library, "dnnl_gemm_bf16bf16f32") : nullptr;
    return {reinterpret_cast<Gemm<float>>(sgemm), reinterpret_cast<Gemm<at::BFloat16>>(bf16)};
  }
  return {};
}

std::atomic<bool>& Used() {
  static std::atomic<bool> used = true;
  return used;
}

// What computes products on the CPU instead of LibTorch; nullptr: nothing.
OneDnnGemms OneDnn() {
  static const OneDnnGemms gemms = OpenOneDnn();
  return Used() ? gemms : OneDnnGemms();
}

// A matrix as they take it: its elements, whether they lie by columns, and how far apart its rows
// (or columns) are.
template <class T>
struct Operand {
  const T* data;
  char op;
  int64_t leading;
};

template <class T>
std::optional<Operand<T>> AsOperand(const at::Tensor& x) {
  const int64_t rows = x.size(0), columns = x.size(1), down = x.stride(0), right = x.stride(1);
  const auto* data = x.const_data_ptr<T>();
  if ((right == 1 || columns == 1) && (down >= columns || rows == 1))
    return Operand<T>{data, 'N', std::max(down, columns)};
  if ((down == 1 || rows == 1) && (right >= rows || columns == 1))
    return Operand<T>{data, 'T', std::max(right, rows)};
  return {};
}

// c = a b + beta c by `gemm`; false where that cannot be, and nothing was done.
template <class T>
bool By(Gemm<T> gemm, const at::Tensor& a, const at::Tensor& b, float beta, at::Tensor& c) {
  const auto suits = [](const at::Tensor& x, at::ScalarType dtype) {
    return x.is_cpu() && x.scalar_type() == dtype && x.size(0) > 0 && x.size(1) > 0;
  };
  constexpr auto kDtype = c10::CppTypeToScalarType<T>::value;
  if (gemm == nullptr || !suits(a, kDtype) || !suits(b, kDtype) || !suits(c, at::kFloat))
    return false;
  EQUIPOISE_CHECK(a.dim() == 2 && b.dim() == 2 && c.dim() == 2 && a.size(1) == b.size(0) &&
                  c.size(0) == a.size(0) && c.size(1) == b.size(1));
  const auto left = AsOperand<T>(a), right = AsOperand<T>(b);
  const auto result = AsOperand<float>(c);
  if (!left || !right || !result || result->op != 'N') return false;
  RECORD_FUNCTION("onednn::gemm", {});  // as LibTorch's operators are seen by its profiler
  return gemm(left->op, right->op, a.size(0), b.size(1), a.size(1), 1.0F, left->data, left->leading,
              right->data, right->leading, beta, c.mutable_data_ptr<float>(), result->leading) == 0;
}

// The same of fp32 matrices by oneDNN.
bool ByOneDnn(const at::Tensor& a, const at::Tensor& b, float beta, at::Tensor& c) {
  // Small products stay LibTorch's, and those with a vector. Of few rows oneDNN has other kernels,
  // by which a row has other bits than among more rows; a vector's terms it adds up one by one,
  // which over a vocabulary of 140,000 is off by 4e-5.
  constexpr int64_t kLeastTerms = 1 << 22;
  if (c.size(0) == 1 || c.size(1) == 1 || c.numel() * a.size(1) < kLeastTerms) return false;
  return By(OneDnn().fp32, a, b, beta, c);
}

}  // namespace

at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b) {
  if (!ProductsAreOneDnns() || !a.is_cpu()) return at::mm(a, b);
  at::Tensor product = at::empty({a.size(0), b.size(1)}, a.options());
  MatrixProductInto(product, a, b);
  return product;
}

at::Tensor MatrixProductPlus(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu()) return at::addmm(bias, a, b);
  at::Tensor sum = at::empty({a.size(0), b.size(1)}, a.options());
  CopyRuns(bias.expand_as(sum), sum);
  AddMatrixProduct(sum, a, b);
  return sum;
}

void MatrixProductInto(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  if (!ByOneDnn(a, b, 0.0F, out)) at::mm_out(out, a, b);
}

void AddMatrixProduct(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (!ByOneDnn(a, b, 1.0F, sum)) sum.addmm_(a, b);
}

bool AddBf16Product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  return By(OneDnn().bf16, a, b, 1.0F, sum);
}

bool AvoidsMkl() { return Used() && CpuPrefersOneDnn(); }

bool ProductsAreOneDnns() { return OneDnn().fp32 != nullptr; }

void UseOneDnn(bool use) { Used() = use; }

}  // namespace equipoise::ops
