#include "models/weights/gptq_part.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "models/spec/tensor_spec.h"

namespace equipoise {
namespace {

at::Tensor AllRows(int64_t out) { return at::arange(out, at::kLong); }

// Elements with the numbers of `digits`, the first in the lowest bits: each row of eight.
int32_t Word(const std::vector<uint32_t>& digits) {
  uint32_t word = 0;
  for (size_t i = 0; i < digits.size(); ++i) word |= digits[i] << (4 * i);
  return static_cast<int32_t>(word);
}

// Two words of eight inputs, eight outputs, two groups whose inputs are mixed.
GptqTensors Given() {
  GptqTensors given;
  given.qweight = at::empty({2, 8}, at::kInt);
  for (int output = 0; output < 8; ++output) {
    given.qweight[0][output] = Word({0, 1, 2, 3, 4, 5, 6, 7});
    given.qweight[1][output] = Word({15, 14, 13, 12, 11, 10, 9, 8});
  }
  given.qweight[0][3] = Word({7, 7, 7, 7, 7, 7, 7, 15});
  given.qzeros =
      at::tensor({Word({7, 7, 7, 6, 0, 15, 3, 1}), Word({7, 2, 7, 7, 7, 7, 7, 14})}, at::kInt)
          .view({2, 1});
  given.scales = at::full({2, 8}, 0.5, at::kHalf);
  given.scales[1] = 2;
  given.scales[0][3] = 0.25;
  given.g_idx = at::tensor({0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0}, at::kInt);
  return given;
}

at::Tensor Unpacked(const GptqMatrix& matrix, const MatrixPart& part,
                    at::ScalarType dtype = at::kFloat) {
  return GptqPart(matrix, part, at::kCPU)->Unpacked(dtype);
}

MatrixPart WholeOf(const GptqMatrix& matrix) { return {-1, 0, matrix.codes.sizes().vec()}; }

// A matrix of pseudo-random numbers.
GptqMatrix Mixed(int64_t out, int64_t in, int64_t groups, bool act_order) {
  GptqMatrix matrix;
  const at::Tensor index = at::arange(out * in, at::kLong);
  matrix.codes = index.mul(7919).add(index.bitwise_right_shift(3)).remainder(16).to(at::kByte);
  matrix.codes = matrix.codes.view({out, in});
  const at::Tensor each = at::arange(out * groups, at::kLong).view({out, groups});
  matrix.zeros = each.mul(31).remainder(17).to(at::kByte);
  matrix.scales = each.mul(13).remainder(11).add(1).to(at::kFloat).mul(0.01).to(at::kHalf);
  const at::Tensor input = at::arange(in, at::kInt);
  matrix.groups =
      act_order ? input.mul(5).remainder(groups) : input.div((in + groups - 1) / groups, "floor");
  matrix.groups = matrix.groups.to(at::kInt);
  return matrix;
}

TEST_CASE("given words are unpacked by the published formula", "[gptq][cpu]") {
  const at::Tensor w = [] {
    const GptqMatrix matrix = UnpackGptq(Given(), AllRows(8), /*zero_offset=*/1);
    return Unpacked(matrix, WholeOf(matrix));
  }();
  REQUIRE(w.sizes() == at::IntArrayRef({8, 16}));
  const auto row = [&](int64_t output) {
    const at::Tensor values = w[output].contiguous();
    const auto* data = values.const_data_ptr<float>();
    return std::vector<float>(data, data + 16);
  };
  // Zeros of 8 in both groups, scales 0.5 and 2.
  CHECK(row(0) == std::vector<float>{-4, -14, -3, -10, -2, -6, -1, -2,  //
                                     14, 12, 10, 8, 1.5, 1, 0.5, 0});
  // Zeros 8 and 3.
  CHECK(row(1) == std::vector<float>{-4, -4, -3, 0, -2, 4, -1, 8,  //
                                     24, 22, 20, 18, 1.5, 1, 0.5, 0});
  // Zeros 7 and 8, scales 0.25 and 2.
  CHECK(row(3) == std::vector<float>{0, -2, 0, -2, 0, -2, 0, 14,  //
                                     14, 12, 10, 8, 1, 0.75, 0.5, 0.25});
  // A stored 15 stands for 16.
  CHECK(row(5) == std::vector<float>{-8, -14, -7, -10, -6, -6, -5, -2,  //
                                     14, 12, 10, 8, -2.5, -3, -3.5, -4});
  CHECK(row(7)[8] == 0);  // 2 * (15 - 15)
}

TEST_CASE("version 2 of the format stores zeros as they are", "[gptq][cpu]") {
  const GptqMatrix first = UnpackGptq(Given(), AllRows(8), 1);
  const GptqMatrix second = UnpackGptq(Given(), AllRows(8), 0);
  CHECK(first.zeros.equal(second.zeros.add(1)));
  const at::Tensor difference = Unpacked(second, WholeOf(second)) - Unpacked(first, WholeOf(first));
  CHECK(difference[0][0].item<float>() == 0.5F);
  CHECK(difference[0][1].item<float>() == 2);
}

TEST_CASE("outputs are taken in the order in which they are named", "[gptq][cpu]") {
  const GptqMatrix all = UnpackGptq(Given(), AllRows(8), 1);
  const GptqMatrix some = UnpackGptq(Given(), at::tensor({3, 0, 5}, at::kLong), 1);
  const at::Tensor whole = Unpacked(all, WholeOf(all)), taken = Unpacked(some, WholeOf(some));
  CHECK(taken[0].equal(whole[3]));
  CHECK(taken[1].equal(whole[0]));
  CHECK(taken[2].equal(whole[5]));
}

TEST_CASE("a rank's part has the values of the whole, wherever it begins", "[gptq][cpu]") {
  for (const bool act_order : {false, true}) {
    const GptqMatrix matrix = Mixed(34, 72, 5, act_order);
    const at::Tensor whole = Unpacked(matrix, WholeOf(matrix));
    const at::Tensor gathered = matrix.groups.to(at::kLong);
    const at::Tensor exact =
        (matrix.codes.to(at::kFloat) - matrix.zeros.to(at::kFloat).index_select(1, gathered)) *
        matrix.scales.to(at::kFloat).index_select(1, gathered);
    CHECK(whole.equal(exact));
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      CHECK(Unpacked(matrix, WholeOf(matrix), dtype).equal(whole.to(dtype)));
      CHECK(Unpacked(matrix, {0, 3, {9, 72}}, dtype).equal(whole.narrow(0, 3, 9).to(dtype)));
      for (const auto& [begin, width] : {std::pair{0, 36}, {36, 36}, {13, 7}, {71, 1}}) {
        const MatrixPart part = {1, begin, {34, width}};
        CHECK(Unpacked(matrix, part, dtype).equal(whole.narrow(1, begin, width).to(dtype)));
      }
    }
  }
}

TEST_CASE("GPTQ's weights take the bytes that plans count", "[gptq][cpu]") {
  for (const bool act_order : {false, true}) {
    const GptqMatrix matrix = Mixed(64, 256, 8, act_order);
    TensorSpec spec = {"w", {64, 256}, {}, 0, Split::Width(64, "outputs")};
    spec.packing = Packing::kGptq;
    spec.gptq = {.group_size = 32, .act_order = act_order};
    const auto bytes = [&](const MatrixPart& part) {
      return GptqPart(matrix, part, at::kCPU)->bytes();
    };
    CHECK(bytes(WholeOf(matrix)) == 64 * 128 + 3 * 64 * 8 + 4 * 256);
    CHECK(bytes(WholeOf(matrix)) == spec.LargestBytes(1, 2));
    CHECK(bytes({0, 32, {32, 256}}) == spec.LargestBytes(2, 2));
    spec.dim = 1;
    spec.split = Split::Width(256, "inputs");
    // Where a range of inputs begins with a group, it has one group less than is counted.
    const int64_t spare = act_order ? 0 : 3 * 64;
    CHECK(bytes({1, 128, {64, 128}}) + spare == spec.LargestBytes(2, 2));
    CHECK(bytes({1, 16, {64, 128}}) == spec.LargestBytes(2, 2));
  }
}

TEST_CASE("random weights are rounded to the nearest of 15 steps of their group", "[gptq][cpu]") {
  const at::Tensor index = at::arange(6 * 40, at::kDouble);
  const at::Tensor matrix =
      (index * 0.7).sin().mul(index.remainder(5) + 0.1).to(at::kFloat).view({6, 40});
  for (const int64_t size : {16, 64, -1}) {
    const GptqMatrix rounded = RoundToGptq(matrix, {.group_size = size});
    CHECK(rounded.scales.size(1) == (size == 16 ? 3 : 1));
    const at::Tensor step =
        rounded.scales.to(at::kFloat).index_select(1, rounded.groups.to(at::kLong));
    const at::Tensor error = (Unpacked(rounded, WholeOf(rounded)) - matrix).abs();
    CHECK((error <= 0.51 * step).all().item<bool>());
    CHECK(rounded.codes.max().item<int>() <= 15);
  }
  const GptqMatrix zeros = RoundToGptq(at::zeros({2, 16}), {.group_size = 16});
  CHECK(Unpacked(zeros, WholeOf(zeros)).eq(0).all().item<bool>());
}

}  // namespace
}  // namespace equipoise
