#include "models/weights/packed_part.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "configs/base/error.h"

namespace equipoise {
namespace {

at::Tensor Matrix(int64_t rows, int64_t columns) {
  const at::Tensor index = at::arange(rows * columns, at::kDouble);
  return (index * 0.7).sin().mul(index.remainder(5) + 0.1).to(at::kFloat).view({rows, columns});
}

at::Tensor Whole(const at::Tensor& matrix, Packing packing) {
  return PackedPart(matrix, packing, {-1, 0, matrix.sizes().vec()}, at::kCPU, "w")
      ->Unpacked(at::kFloat);
}

TEST_CASE("NF4 takes the nearest of its 16 values times the block's scale", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(6, 128);
  const Nf4Blocks blocks = QuantizeNf4(matrix);
  const at::Tensor scales = ScalesOf(blocks);
  const at::Tensor exact = matrix.view({-1, kNf4Block}).abs().amax(1);
  CHECK((scales - exact).abs().max().item<double>() < 0.02 * exact.max().item<double>());
  const at::Tensor unpacked = Whole(matrix, Packing::kNf4).view({-1, kNf4Block});
  const std::vector<float>& values = Nf4Values();
  for (int64_t block = 0; block < unpacked.size(0); ++block) {
    for (int64_t i = 0; i < kNf4Block; i += 7) {
      const double x =
          matrix.view({-1, kNf4Block})[block][i].item<double>() / exact[block].item<double>();
      double nearest = values[0];
      for (const float value : values) {
        if (std::abs(value - x) < std::abs(nearest - x)) nearest = value;
      }
      CHECK(unpacked[block][i].item<double>() ==
            Approx(nearest * scales[block].item<double>()).margin(1e-6));
    }
  }
}

TEST_CASE("a block of zeros stays zero", "[packed][cpu]") {
  at::Tensor matrix = Matrix(2, 128);
  matrix[1].zero_();
  // Double quantisation moves the scale of 0 a little; its codes are those of 0.
  CHECK(Whole(matrix, Packing::kNf4)[1].abs().max().item<double>() == 0);
  CHECK(Whole(matrix, Packing::kInt8)[1].abs().max().item<double>() == 0);
}

TEST_CASE("the dynamic map has 256 ascending values between -1 and 1", "[packed][cpu]") {
  const std::vector<float>& values = DynamicValues();
  REQUIRE(values.size() == 256);
  CHECK(std::is_sorted(values.begin(), values.end()));
  CHECK(values.front() == Approx(-0.99296875));
  CHECK(values.back() == 1);
}

TEST_CASE("a rank's part has the values of the whole", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(10, 192);
  for (const Packing packing : {Packing::kNf4, Packing::kInt8}) {
    const at::Tensor whole = Whole(matrix, packing);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const auto rows = PackedPart(matrix, packing, {0, 3, {4, 192}}, at::kCPU, "w");
      CHECK(rows->Unpacked(dtype).equal(whole.narrow(0, 3, 4).to(dtype)));
      for (const auto& [begin, width] : {std::pair{0, 64}, {64, 128}, {48, 80}, {100, 92}}) {
        const auto columns = PackedPart(matrix, packing, {1, begin, {10, width}}, at::kCPU, "w");
        CHECK(columns->Unpacked(dtype).equal(whole.narrow(1, begin, width).to(dtype)));
      }
    }
  }
}

TEST_CASE("rows that are no whole blocks are packed as one, and not split", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(5, 77);
  const at::Tensor whole = Whole(matrix, Packing::kNf4);
  CHECK(whole.sizes() == matrix.sizes());
  CHECK((whole - matrix).abs().max().item<double>() < 0.2 * matrix.abs().max().item<double>());
  CHECK_THROWS_AS(PackedPart(matrix, Packing::kNf4, {0, 0, {2, 77}}, at::kCPU, "w"), ConfigError);
}

TEST_CASE("int8 rounds each row to 127 steps of its largest element", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(4, 64);
  const at::Tensor step = matrix.abs().amax(1, /*keepdim=*/true) / 127;
  const at::Tensor error = (Whole(matrix, Packing::kInt8) - matrix).abs();
  CHECK((error <= 0.5001 * step).all().item<bool>());
}

TEST_CASE("packed weights take the bytes that plans count", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(256, 256);
  const auto nf4 = PackedPart(matrix, Packing::kNf4, {-1, 0, {256, 256}}, at::kCPU, "w");
  CHECK(nf4->bytes() == 256 * 256 / 2 + 1024 + 4 * 4 + 4);
  const auto int8 = PackedPart(matrix, Packing::kInt8, {-1, 0, {256, 256}}, at::kCPU, "w");
  CHECK(int8->bytes() == 256 * 256 + 4 * 256);
}

}  // namespace
}  // namespace equipoise
