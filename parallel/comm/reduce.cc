#include "parallel/comm/reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>

#include "configs/base/error.h"

namespace equipoise {
namespace {

template <class T>
T Combine(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    case ReduceOp::kMax:
      return a < b || b != b ? b : a;
    case ReduceOp::kMin:
      return b < a || b != b ? b : a;
  }
  return a;
}

template <class Stored, class Sum, ReduceOp kOp>
void ReduceTyped(void* out, const std::vector<const void*>& parts, int64_t count) {
  constexpr int64_t kBlock = 2048;  // sums stay in the first-level cache
  std::array<Sum, kBlock> sums;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const Stored* first = static_cast<const Stored*>(parts[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<Sum>(first[i]);
    for (size_t p = 1; p < parts.size(); ++p) {
      const Stored* part = static_cast<const Stored*>(parts[p]) + begin;
      for (int64_t i = 0; i < n; ++i) {
        sums[i] = Combine(sums[i], static_cast<Sum>(part[i]), kOp);
      }
    }
    Stored* result = static_cast<Stored*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) result[i] = static_cast<Stored>(sums[i]);
  }
}

template <class Stored, class Sum>
void ReduceAs(void* out, const std::vector<const void*>& parts, int64_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceTyped<Stored, Sum, ReduceOp::kSum>(out, parts, count);
    case ReduceOp::kMax:
      return ReduceTyped<Stored, Sum, ReduceOp::kMax>(out, parts, count);
    case ReduceOp::kMin:
      return ReduceTyped<Stored, Sum, ReduceOp::kMin>(out, parts, count);
  }
}

}  // namespace

bool CanReduce(at::ScalarType dtype) {
  return dtype == at::ScalarType::Float || dtype == at::ScalarType::BFloat16 ||
         dtype == at::ScalarType::Half || dtype == at::ScalarType::Double ||
         dtype == at::ScalarType::Long;
}

void Reduce(void* out, const std::vector<const void*>& parts, int64_t count, at::ScalarType dtype,
            ReduceOp op) {
  switch (dtype) {
    case at::ScalarType::Float:
      return ReduceAs<float, float>(out, parts, count, op);
    case at::ScalarType::BFloat16:
      return ReduceAs<c10::BFloat16, float>(out, parts, count, op);
    case at::ScalarType::Half:
      return ReduceAs<c10::Half, float>(out, parts, count, op);
    case at::ScalarType::Double:
      return ReduceAs<double, double>(out, parts, count, op);
    case at::ScalarType::Long:
      return ReduceAs<int64_t, int64_t>(out, parts, count, op);
    default:
      EQUIPOISE_CHECK(false, "cannot reduce tensors of type ", c10::toString(dtype));
  }
}

}  // namespace equipoise
