#include "trainer/settings/loss_scaler.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

TrainSection Fp16(const LossScaleSection& scale) {
  TrainSection train;
  train.precision = "fp16";
  train.loss_scale = scale;
  return train;
}

// What a scaler does with a step whose gradients overflow, or do not.
void Step(LossScaler& scaler, bool overflows) {
  if (overflows) {
    scaler.Lower();
  } else {
    scaler.StepTaken();
  }
}

TEST_CASE("no precision but fp16 scales the loss", "[loss_scale][cpu]") {
  for (const char* precision : {"auto", "fp32", "bf16"}) {
    TrainSection train;
    train.precision = precision;
    LossScaler scaler(train);
    CHECK_FALSE(scaler.on());
    CHECK(scaler.scale() == 1);
    CHECK_FALSE(scaler.CanLower());
    for (int64_t i = 0; i < 2 * train.loss_scale.growth_interval; ++i)
      CHECK_FALSE(scaler.StepTaken());
    CHECK(scaler.scale() == 1);
  }
}

TEST_CASE("the scale begins as PyTorch's and Megatron's do", "[loss_scale][cpu]") {
  const LossScaler scaler(Fp16({}));
  CHECK(scaler.on());
  CHECK(scaler.scale() == 65536);
  CHECK(scaler.state() == LossScale{65536, 0});
}

TEST_CASE("the scale doubles after so many good steps in a row", "[loss_scale][cpu]") {
  LossScaler scaler(Fp16({.initial = 1024, .growth_interval = 3, .minimum = 1}));
  std::vector<double> scales;
  std::vector<int> grown;
  for (int step = 1; step <= 7; ++step) {
    if (scaler.StepTaken()) grown.push_back(step);
    scales.push_back(scaler.scale());
  }
  CHECK(grown == std::vector<int>{3, 6});
  CHECK(scales == std::vector<double>{1024, 1024, 2048, 2048, 2048, 4096, 4096});
  CHECK(scaler.state() == LossScale{4096, 1});
}

// The scales and counts of torch.amp.GradScaler(init_scale=8, growth_interval=3) for the same
// steps.
TEST_CASE("an overflow halves the scale and begins the count anew", "[loss_scale][cpu]") {
  LossScaler scaler(Fp16({.initial = 8, .growth_interval = 3, .minimum = 1}));
  struct Then {
    bool overflows;
    LossScale after;
  };
  for (const Then& then : {Then{false, {8, 1}}, Then{false, {8, 2}}, Then{true, {4, 0}},
                           Then{true, {2, 0}}, Then{false, {2, 1}}, Then{false, {2, 2}},
                           Then{false, {4, 0}}, Then{false, {4, 1}}, Then{true, {2, 0}}}) {
    Step(scaler, then.overflows);
    CHECK(scaler.state() == then.after);
  }
}

TEST_CASE("the scale becomes no smaller than the minimum", "[loss_scale][cpu]") {
  LossScaler scaler(Fp16({.initial = 16, .growth_interval = 2, .minimum = 4}));
  for (const double scale : {8.0, 4.0}) {
    CHECK(scaler.CanLower());
    scaler.Lower();
    CHECK(scaler.scale() == scale);
  }
  CHECK_FALSE(scaler.CanLower());
  CHECK_THROWS(scaler.Lower());
  CHECK_FALSE(scaler.StepTaken());
  CHECK(scaler.StepTaken());
  CHECK(scaler.CanLower());
}

TEST_CASE("the scale has an end above", "[loss_scale][cpu]") {
  LossScaler scaler(
      Fp16({.initial = LossScaleSection::kMost / 2, .growth_interval = 1, .minimum = 1}));
  CHECK(scaler.StepTaken());
  CHECK_FALSE(scaler.StepTaken());
  CHECK(scaler.scale() == static_cast<double>(LossScaleSection::kMost));
}

TEST_CASE("a scaler goes on from what a checkpoint kept", "[loss_scale][cpu]") {
  const TrainSection train = Fp16({.initial = 1024, .growth_interval = 5, .minimum = 2});
  LossScaler whole(train), second(train);
  const std::vector<bool> overflows = {false, false, true, false, false, false, false, true, false};
  for (size_t i = 0; i < overflows.size(); ++i) {
    if (i == 5) second.Restore(whole.state());
    Step(whole, overflows[i]);
    if (i >= 5) Step(second, overflows[i]);
  }
  CHECK(second.state() == whole.state());
  // Of a run with another minimum.
  second.Restore({1, 3});
  CHECK(second.state() == LossScale{2, 3});
}

std::string Refusal(const LossScaleSection& section) {
  try {
    CheckLossScale(section);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a scale that is no power of two is refused", "[loss_scale][cpu]") {
  CHECK(Refusal({}).empty());
  CHECK(Refusal({.initial = 1, .growth_interval = 1, .minimum = 1}).empty());
  CHECK(Refusal({.initial = 1000, .growth_interval = 1, .minimum = 1}) ==
        "train.loss_scale.initial: 1000 is no power of two, so gradients would be rounded; take "
        "512 or 1024");
  CHECK(Refusal({.initial = 1024, .growth_interval = 1, .minimum = 3}) ==
        "train.loss_scale.minimum: 3 is no power of two, so gradients would be rounded; take 2 or "
        "4");
  CHECK(Refusal({.initial = 2, .growth_interval = 1, .minimum = 4}) ==
        "train.loss_scale.initial: 2 is below the minimum of 4; set it to 4 or more");
}

}  // namespace
}  // namespace equipoise
