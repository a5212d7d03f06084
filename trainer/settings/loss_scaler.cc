#include "trainer/settings/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr auto kMost = static_cast<double>(LossScaleSection::kMost);

void RequirePowerOfTwo(const char* key, int64_t scale) {
  const auto bits = static_cast<uint64_t>(scale);
  if (std::has_single_bit(bits)) return;
  throw ConfigError(fmt::format(
      "train.loss_scale.{}: {} is no power of two, so gradients would be rounded; take {} or {}",
      key, scale, std::bit_floor(bits), std::bit_ceil(bits)));
}

}  // namespace

LossScaler::LossScaler(const TrainSection& train)
    : on_(train.precision == ToString(Precision::kFp16)) {
  if (!on_) return;
  minimum_ = static_cast<double>(train.loss_scale.minimum);
  growth_interval_ = train.loss_scale.growth_interval;
  state_.scale = static_cast<double>(train.loss_scale.initial);
}

void LossScaler::Restore(const LossScale& state) {
  EQUIPOISE_CHECK(on_);
  state_ = state;
  state_.scale = std::clamp(state.scale, minimum_, kMost);
}

void LossScaler::Lower() {
  EQUIPOISE_CHECK(CanLower(), state_.scale);
  state_ = {state_.scale / 2, 0};
}

bool LossScaler::StepTaken() {
  if (!on_ || ++state_.good_steps < growth_interval_) return false;
  state_.good_steps = 0;
  if (state_.scale >= kMost) return false;
  state_.scale *= 2;
  return true;
}

void CheckLossScale(const LossScaleSection& section) {
  RequirePowerOfTwo("initial", section.initial);
  RequirePowerOfTwo("minimum", section.minimum);
  if (section.initial >= section.minimum) return;
  throw ConfigError(
      fmt::format("train.loss_scale.initial: {} is below the minimum of {}; set it to {} or more",
                  section.initial, section.minimum, section.minimum));
}

}  // namespace equipoise
