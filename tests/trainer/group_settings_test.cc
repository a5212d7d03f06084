#include "trainer/settings/group_settings.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

EpochSummary Packs() {
  EpochSummary epoch;
  epoch.groups = 584;
  epoch.samples = 4964;
  epoch.balance = {.fill_share = 0.991,
                   .dist_ratio_vision = 0.018,
                   .dist_ratio_text = 0.046,
                   .dist_ratio_time = 0.031};
  return epoch;
}

EpochSummary Padded() {
  EpochSummary epoch = Packs();
  epoch.balance = {.pad_ratio = 0.58, .fill_share = 0.42, .dist_ratio_time = 0.583};
  return epoch;
}

TEST_CASE("limits say where they come from", "[group_settings][cpu]") {
  GroupOptions options;
  options.patch_unit = 1025;
  const auto text = [&options](GroupLimits limits, GroupLimits given, int64_t max_tokens) {
    options.limits = limits;
    BalanceSection balance;
    balance.tiles = given.patches;
    balance.tokens = given.tokens;
    return DescribeLimits(options, balance, max_tokens);
  };
  CHECK(text({10250, 4096}, {0, 0}, 4096) == "10 tiles (chosen) and 4096 tokens (data.max_tokens)");
  CHECK(text({9225, 4096}, {9, 4096}, 2048) ==
        "9 tiles (balance.tiles) and 4096 tokens (balance.tokens)");
  CHECK(text({7175, 2048}, {0, 0}, 4096) == "7 tiles (chosen) and 2048 tokens (chosen)");
}

TEST_CASE("epochs are as many steps as they take", "[group_settings][cpu]") {
  TrainSection train;
  train.steps = 7;
  train.global_batch = 16;
  CHECK(StepsOf(train, 100) == 7);
  train.epochs = 1;
  CHECK(StepsOf(train, 160) == 10);
  CHECK(StepsOf(train, 161) == 11);
  train.epochs = 2.5;
  CHECK(StepsOf(train, 160) == 25);
  train.epochs = 1.1;  // times 1,600 a little more than 1,760 in binary
  CHECK(StepsOf(train, 1600) == 110);
  CHECK(StepsOf(1.1, 1600, 16) == 110);  // as `plan` and goals count them
  CHECK(StepsOf(train, 1601) == 111);
  train.epochs = 1e-6;
  CHECK(StepsOf(train, 160) == 1);
  // Going on: the same in steps of the same size, and what is left in others.
  train.epochs = 2;
  for (const double epochs : {2.0, 0.7, 1.1, 3.3}) {
    train.epochs = epochs;
    for (int64_t step = 0; step < StepsOf(train, 161); ++step)
      CHECK(StepsOf(train, 161, {step, step * 16}) == StepsOf(train, 161));
  }
  train.epochs = 2;
  train.global_batch = 4;
  CHECK(StepsOf(train, 160, {10, 160}) == 10 + 40);
  CHECK(StepsOf(train, 160, {15, 240}) == 15 + 20);
  train.epochs = 1;
  CHECK(StepsOf(train, 160, {15, 240}) == 15);
  CHECK(StepsOf(train, 160, {15, -1}) == 40);
}

TEST_CASE("limits in tiles become the encoder's patches", "[group_settings][cpu]") {
  ImageSpec images;
  images.rows_per_tile = 1025;
  RunConfig config;
  config.balance.tiles = 9;
  config.balance.min_tiles = 7;
  config.balance.tokens = 4096;
  GroupOptions options = GroupOptionsOf(config, LoadCost(), images);
  CHECK(options.limits.patches == 9225);
  CHECK(options.limits.tokens == 4096);
  CHECK(options.min_patches == 7175);
  CHECK(options.patch_unit == 1025);
  CHECK(options.limit_units() == 9);
  config.balance.tiles = 0;  // to be chosen
  CHECK(GroupOptionsOf(config, LoadCost(), images).limits.patches == 0);
  CHECK(GroupOptionsOf(config, LoadCost(), {}).patch_unit == 1);  // a language model alone
}

TEST_CASE("micro-batches are described for who does not know them", "[group_settings][cpu]") {
  GroupOptions options;
  CHECK(DescribeMicroBatches(Packs(), options, "LIMITS") ==
        "584 micro-batches an epoch (what a rank computes at a time): packs by isf+, at most "
        "LIMITS; 8.5 samples each on average, 99.1 % full, no padding");
  options.method = GroupMethod::kRandom;
  options.micro_batch = 8;
  CHECK(DescribeMicroBatches(Packs(), options, "LIMITS") ==
        "584 micro-batches an epoch (what a rank computes at a time): 8 samples each "
        "(train.micro_batch) by random, not padded; a sample has at most LIMITS");
  options.pad = true;
  CHECK(DescribeMicroBatches(Padded(), options, "LIMITS") ==
        "584 micro-batches an epoch (what a rank computes at a time): 8 samples each "
        "(train.micro_batch) by random, padded to the longest: 58.0 % of the tokens are padding; "
        "a sample has at most LIMITS");
}

TEST_CASE("balance is told beside that of random micro-batches", "[group_settings][cpu]") {
  GroupOptions options;
  CHECK(DescribeBalance(Packs(), Padded(), options, 8) ==
        "8 data ranks wait 3.1 % of the time for the one with the most to do, by FLOPs (of tiles "
        "1.8 %, of tokens 4.6 %); with random micro-batches of 9 samples, padded, 58.3 %, and "
        "58.0 % of the tokens are padding");
  CHECK(DescribeBalance(Packs(), Padded(), options, 1) ==
        "in random micro-batches of 9 samples, padded, 58.0 % of the tokens are padding");
  options.method = GroupMethod::kRandom;
  options.pad = true;
  CHECK(DescribeBalance(Padded(), Padded(), options, 8) ==
        "8 data ranks wait 58.3 % of the time for the one with the most to do, by FLOPs (of tiles "
        "0.0 %, of tokens 0.0 %)");
  CHECK(DescribeBalance(Padded(), Padded(), options, 1) ==
        "one data rank, which waits for no other");
}

TEST_CASE("the baseline is padded", "[group_settings][cpu]") {
  const GroupOptions random = RandomBaseline({}, 8.5);
  CHECK(random.method == GroupMethod::kRandom);
  CHECK(random.pad);
  CHECK(random.micro_batch == 9);
}

}  // namespace
}  // namespace equipoise
