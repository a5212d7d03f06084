#include "tests/cuda/vector_add.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "tests/skip_case.h"

namespace equipoise {
namespace {

TEST_CASE("a kernel of our own build adds two vectors", "[cuda][gpu]") {
  if (CudaDevices() == 0) {
    return testing::SkipCase("no GPU");
  }
  std::vector<float> left(1000);
  std::vector<float> right(left.size());
  std::vector<float> sum(left.size());
  for (size_t i = 0; i < left.size(); ++i) {
    left[i] = static_cast<float>(i);
    right[i] = 0.5F * static_cast<float>(i);
    sum[i] = 1.5F * static_cast<float>(i);
  }
  CHECK(AddOnDevice(left, right) == sum);
}

}  // namespace
}  // namespace equipoise
