#include "parallel/split_master.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace equipoise {
namespace {

struct Halves {
  std::vector<uint32_t> joined;
  std::vector<uint16_t> weight;
};

// The bits of each master, split and joined again, and the bf16 half.
Halves SplitAndJoin(std::vector<uint32_t> bits) {
  const auto size = static_cast<int64_t>(bits.size());
  const at::Tensor master = at::from_blob(bits.data(), {size}, at::kFloat).clone();
  const at::Tensor weight = at::empty({size}, at::kBFloat16), alone = weight.clone();
  const at::Tensor remainder = at::empty({size}, at::kShort), back = at::empty({size}, at::kFloat);
  SplitMaster(master, weight, remainder);
  JoinMaster(weight, remainder, back);
  RoundMaster(master, alone);
  Halves halves{std::vector<uint32_t>(bits.size()), std::vector<uint16_t>(bits.size())};
  std::memcpy(halves.joined.data(), back.const_data_ptr(), 4 * bits.size());
  std::memcpy(halves.weight.data(), weight.const_data_ptr(), 2 * bits.size());
  CHECK(std::memcmp(weight.const_data_ptr(), alone.const_data_ptr(), 2 * bits.size()) == 0);
  return halves;
}

TEST_CASE("a master is given back to the bit by its two halves", "[parallel][cpu]") {
  std::vector<uint32_t> bits = {0,          0x80000000, 0x3F808000, 0x3F7F8000, 0x3F80, 0x7F7FFFFF,
                                0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 1,      0x80000001};
  // Every pattern of the low half beside highs of all exponents.
  for (uint32_t low = 0; low <= 0xFFFF; ++low) bits.push_back((low * 40503U) << 16 | low);
  const Halves halves = SplitAndJoin(bits);
  CHECK(halves.joined == bits);
}

TEST_CASE("the bf16 half is the master rounded to nearest, ties away from zero",
          "[parallel][cpu]") {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  const std::vector<uint32_t> masters = {
      0x3F808000, 0x3F7F8000, 0x3F807FFF, 0x3F808001,
      0xBF808000, 0xBF807FFF, bits(1.0F), bits(std::numeric_limits<float>::infinity())};
  CHECK(SplitAndJoin(masters).weight ==
        std::vector<uint16_t>{0x3F81, 0x3F80, 0x3F80, 0x3F81, 0xBF81, 0xBF80, 0x3F80, 0x7F80});
}

TEST_CASE("away from ties the bf16 half is ATen's rounding", "[parallel][cpu]") {
  std::vector<uint32_t> bits;
  for (uint32_t i = 0; i < 100000; ++i) {
    const uint32_t each = i * 2654435761U;
    if ((each & 0xFFFF) != 0x8000 && (each & 0x7F800000) != 0x7F800000) bits.push_back(each);
  }
  const auto size = static_cast<int64_t>(bits.size());
  const at::Tensor rounded =
      at::from_blob(bits.data(), {size}, at::kFloat).to(at::kBFloat16).contiguous();
  const Halves halves = SplitAndJoin(bits);
  CHECK(std::memcmp(halves.weight.data(), rounded.const_data_ptr(), 2 * bits.size()) == 0);
}

}  // namespace
}  // namespace equipoise
