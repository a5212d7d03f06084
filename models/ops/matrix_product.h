#pragma once

#include <ATen/core/Tensor.h>

namespace equipoise::ops {

// Products of matrices of one dtype on one device, as LibTorch's mm and addmm; views and transposed
// views are taken as they are.
//
// In fp32 on the CPU large ones are oneDNN's sgemm (Debian's libdnnl, opened at run time) where
// that is the faster one: LibTorch takes MKL, which keeps its AVX-512 kernels for Intel's CPUs.
// Others get half as many FLOPs a second from it or less (docs/benchmarks.md).

// a b
at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b);
// bias [columns of b] in each row, + a b
at::Tensor MatrixProductPlus(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b);
// out = a b
void MatrixProductInto(at::Tensor out, const at::Tensor& a, const at::Tensor& b);
// sum += a b
void AddMatrixProduct(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);
// sum += a b for bf16 matrices and a sum in fp32, of which nothing is rounded to bf16; false, and
// nothing is done, where the CPU has no bf16 products or oneDNN's are not taken.
bool AddBf16Product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

// Whether the CPU has AVX-512 and is not Intel's, so that what LibTorch computes by MKL, such as
// the products in its attention kernel, takes slow kernels; false after UseOneDnn(false).
bool AvoidsMkl();
// Whether fp32 products on this machine's CPU are oneDNN's: it is installed, and the CPU has
// AVX-512 and is not Intel's.
bool ProductsAreOneDnns();
// Has LibTorch compute them from here on where `use` is false; true where oneDNN is the default.
void UseOneDnn(bool use);

}  // namespace equipoise::ops
