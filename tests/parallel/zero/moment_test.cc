#include "parallel/zero/moment.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "parallel/kernels/dynamic_map.h"

namespace equipoise {
namespace {

using kernels::CodeMap;
using kernels::DynamicCodes;
using kernels::kCodeBlock;

at::Tensor Normal(int64_t size, uint64_t seed, double scale = 1) {
  at::Tensor tensor = at::empty({size}, at::kFloat);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, scale);
  auto* data = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < size; ++i) data[i] = static_cast<float>(normal(random));
  return tensor;
}

Moment Codes(int64_t numel, bool is_signed) {
  return {numel, is_signed, at::TensorOptions(at::kByte)};
}

TEST_CASE("the dynamic maps have 256 ascending values", "[moment][cpu]") {
  for (const bool is_signed : {false, true}) {
    const std::vector<float>& values = DynamicMap(is_signed);
    REQUIRE(values.size() == 256);
    for (size_t i = 1; i < values.size(); ++i) CHECK(values[i - 1] < values[i]);
    CHECK(values.back() == 1);
    CHECK(values.front() == (is_signed ? Approx(-0.99296875) : Approx(0)));
    CHECK(values[is_signed ? 127 : 0] == 0);
  }
  // Of bitsandbytes' create_dynamic_map(signed=False), to the bit.
  CHECK(DynamicMap(false)[1] == 3.2500003e-07F);
  CHECK(DynamicMap(false)[2] == 7.7499999e-07F);
  CHECK(DynamicMap(false)[254] == 0.996484399F);
}

TEST_CASE("a number's code is that of the nearest value of the map", "[moment][cpu]") {
  const bool is_signed = GENERATE(false, true);
  const CodeMap& map = DynamicCodes(is_signed);
  std::vector<float> numbers = {0.0F, -0.0F, 1.0F, is_signed ? -1.0F : 0.0F, 1e-30F, 1e-7F};
  for (const float value : map.values) numbers.push_back(value);
  for (const float bound : kernels::DynamicBounds(is_signed)) {
    numbers.push_back(bound);
    numbers.push_back(std::nextafter(bound, 1.0F));
    numbers.push_back(std::nextafter(bound, -1.0F));
  }
  std::mt19937 random(3);
  std::uniform_real_distribution<double> power(-8, 0);
  for (int i = 0; i < 20'000; ++i) {
    const auto x = static_cast<float>(std::pow(10.0, power(random)));
    numbers.push_back(is_signed && i % 2 == 0 ? -x : x);
  }
  for (const float x : numbers) {
    const double found = std::abs(double{map.values[map.CodeOf(x)]} - x);
    double nearest = 2;
    for (const float value : map.values) nearest = std::min(nearest, std::abs(double{value} - x));
    // A bound is rounded to fp32: at one, the neighbour may be nearer by less than that.
    INFO(x << " has code " << int{map.CodeOf(x)});
    REQUIRE(found <= nearest + std::abs(double{x}) * 1.2e-7);
  }
}

TEST_CASE("bounds too near each other for a bucket are a bug", "[moment][cpu]") {
  std::vector<float> bounds = kernels::DynamicBounds(true);
  bounds[253] = std::nextafter(bounds[254], 0.0F);
  CHECK_THROWS_AS(CodeMap(DynamicMap(true), bounds), std::logic_error);
  bounds.pop_back();
  CHECK_THROWS_AS(CodeMap(DynamicMap(true), bounds), std::logic_error);
}

// Blocks of all magnitudes; of zeros; and, where there is a sign, with the largest of each sign.
at::Tensor Blocks(bool is_signed) {
  std::vector<at::Tensor> blocks;
  for (const double scale : {1.0, 3e-5, 1e-12, 1e-27, 7e24}) {
    for (uint64_t seed = 0; seed < 20; ++seed)
      blocks.push_back(Normal(kCodeBlock, 31 * seed, scale));
  }
  blocks.push_back(at::zeros({kCodeBlock}));
  at::Tensor all = at::cat(blocks);
  return is_signed ? all : all.abs();
}

TEST_CASE("what is saved of codes becomes the same codes and scales", "[moment][cpu]") {
  const bool is_signed = GENERATE(false, true);
  const at::Tensor numbers = Blocks(is_signed);
  Moment moment = Codes(numbers.numel(), is_signed), read = Codes(numbers.numel(), is_signed),
         from_numbers = Codes(numbers.numel(), is_signed);
  moment.Set(0, numbers);
  read.Set(0, moment.Saved(0, numbers.numel()));
  CHECK(read.kept().equal(moment.kept()));
  CHECK(read.Numbers(0, numbers.numel()).equal(moment.Numbers(0, numbers.numel())));
  CHECK(read.Saved(0, numbers.numel()).equal(moment.Saved(0, numbers.numel())));
  // Without a sign the values themselves would do; with one, not where the largest is negative.
  from_numbers.Set(0, moment.Numbers(0, numbers.numel()));
  const bool same =
      from_numbers.Numbers(0, numbers.numel()).equal(moment.Numbers(0, numbers.numel()));
  CHECK(same == !is_signed);
  // Nearest: half the widest gap of the map.
  const at::Tensor difference = moment.Numbers(0, numbers.numel()).sub(numbers).abs();
  const at::Tensor largest = numbers.abs().view({-1, kCodeBlock}).amax(1, /*keepdim=*/true);
  CHECK(difference.view({-1, kCodeBlock})
            .le(largest.mul(is_signed ? 0.00704 : 0.00352))
            .all()
            .item<bool>());
}

TEST_CASE("a block of the smallest numbers is kept as zeros", "[moment][cpu]") {
  Moment moment = Codes(2 * kCodeBlock, true);
  at::Tensor numbers = at::full({2 * kCodeBlock}, -std::ldexp(1.0, -101), at::kFloat);
  numbers.narrow(0, kCodeBlock, 1).fill_(-std::ldexp(1.0, -100));
  moment.Set(0, numbers);
  const at::Tensor read = moment.Numbers(0, 2 * kCodeBlock);
  CHECK(read.narrow(0, 0, kCodeBlock).eq(0).all().item<bool>());
  CHECK(moment.Saved(kCodeBlock, 1).item<double>() == -std::ldexp(1.0, -100));
  CHECK(read[kCodeBlock + 1].item<double>() == Approx(-std::ldexp(1.0, -101)).epsilon(0.01));
}

TEST_CASE("ranges of blocks are read and written alone", "[moment][cpu]") {
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16, at::kByte);
  Moment moment(4 * kCodeBlock, true, at::TensorOptions(dtype));
  CHECK(moment.is_codes() == (dtype == at::kByte));
  CHECK(moment.Numbers(0, 4 * kCodeBlock).eq(0).all().item<bool>());
  const at::Tensor numbers = Normal(kCodeBlock + 10, 1);
  moment.Set(kCodeBlock, numbers);
  CHECK(moment.Numbers(0, kCodeBlock).eq(0).all().item<bool>());
  CHECK(moment.Numbers(3 * kCodeBlock, 0).numel() == 0);
  CHECK(moment.Numbers(3 * kCodeBlock, kCodeBlock).eq(0).all().item<bool>());
  const at::Tensor read = moment.Numbers(kCodeBlock, kCodeBlock + 10);
  CHECK(read.scalar_type() == at::kFloat);
  CHECK(read.sub(numbers).abs().max().item<double>() <= 0.00704 * 4);
  CHECK(read.equal(numbers) == (dtype == at::kFloat));
  CHECK(moment.Saved(kCodeBlock, 5).scalar_type() == (dtype == at::kByte ? at::kFloat : dtype));
}

TEST_CASE("codes of a range that begins within a block are a bug", "[moment][cpu]") {
  Moment moment = Codes(2 * kCodeBlock, false);
  CHECK_THROWS_AS(moment.Numbers(10, 20), std::logic_error);
  CHECK_THROWS_AS(moment.Set(10, at::zeros({20})), std::logic_error);
  CHECK_THROWS_AS(Codes(100, false), std::logic_error);
}

}  // namespace
}  // namespace equipoise
