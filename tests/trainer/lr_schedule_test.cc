#include "trainer/settings/lr_schedule.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace equipoise {
namespace {

TrainSection Recipe(const std::string& schedule, double warmup, double min_lr) {
  TrainSection train;
  train.steps = 10;
  train.lr = 3e-4;
  train.schedule = schedule;
  train.warmup = warmup;
  train.min_lr = min_lr;
  train.decay = 3;
  return train;
}

struct Case {
  TrainSection train;
  std::vector<double> expected;  // before steps 0..10
};

// The numbers are those of Transformers 5.23: the learning rate of an SGD optimizer with lr 3e-4
// under get_cosine_schedule_with_warmup(num_warmup_steps=3, num_training_steps=10), and so on; the
// fourth is get_cosine_with_min_lr_schedule_with_warmup(min_lr_rate=0.1), the last
// get_wsd_schedule(num_warmup_steps=3, num_decay_steps=3, decay_type="1-sqrt"), where min_lr_ratio
// raises the warm-up too, and so was left at 0.
TEST_CASE("the learning rate is Transformers'", "[lr][cpu]") {
  const double warm1 = 9.9999999999999991e-05, warm2 = 0.00019999999999999998, top = 3e-4;
  const std::vector<Case> cases = {
      {Recipe("cosine", 3, 0),
       {0, warm1, warm2, top, 0.00028514533018536282, 0.00024352347027881003,
        0.00018337814009344714, 0.00011662185990655284, 5.6476529721189974e-05,
        1.4854669814637143e-05, 0}},
      {Recipe("linear", 3, 0),
       {0, warm1, warm2, top, 0.0002571428571428571, 0.00021428571428571427, 0.0001714285714285714,
        0.00012857142857142855, 8.5714285714285699e-05, 4.285714285714285e-05, 0}},
      {Recipe("constant", 3, 0), {0, warm1, warm2, top, top, top, top, top, top, top, top}},
      {Recipe("cosine", 3, 0.1),
       {0, warm1, warm2, top, 0.00028663079716682654, 0.00024917112325092901, 0.0001950403260841024,
        0.00013495967391589757, 8.0828876749070987e-05, 4.3369202833173432e-05,
        2.9999999999999997e-05}},
      {Recipe("cosine", 0, 0),
       {top, 0.00029265847744427303, 0.00027135254915624211, 0.00023816778784387094,
        0.00019635254915624211, 0.00014999999999999999, 0.00010364745084375789,
        6.1832212156129036e-05, 2.8647450843757897e-05, 7.34152255572697e-06, 0}},
      {Recipe("wsd", 3, 0),
       {0, warm1, warm2, top, top, top, top, top, 0.00012679491924311227, 5.505102572168218e-05,
        0}},
  };
  for (const Case& c : cases) {
    INFO(c.train.schedule << " warm-up " << c.train.warmup << " min " << c.train.min_lr);
    for (size_t step = 0; step < c.expected.size(); ++step) {
      INFO("step " << step);
      CHECK(LearningRate(c.train, static_cast<int64_t>(step)) ==
            Approx(c.expected[step]).epsilon(1e-12).margin(1e-18));
    }
  }
}

TEST_CASE("a warm-up below one is a share of the steps, rounded up", "[lr][cpu]") {
  const auto warmup_steps = [](int64_t steps, double warmup) {
    TrainSection train;
    train.steps = steps;
    train.warmup = warmup;
    return WarmupSteps(train);
  };
  CHECK(warmup_steps(200, 0.03) == 6);
  CHECK(warmup_steps(201, 0.03) == 7);
  CHECK(warmup_steps(200, 0) == 0);
  CHECK(warmup_steps(200, 1) == 1);
  CHECK(warmup_steps(200, 25) == 25);
}

TEST_CASE("the decay of wsd is a share or a number of steps, and begins behind the warm-up",
          "[lr][cpu]") {
  TrainSection train = Recipe("wsd", 0, 0.5);
  const auto steady = [&train](int64_t steps) {  // at the highest rate
    for (int64_t step = 0; step < steps; ++step) {
      INFO("step " << step);
      CHECK(LearningRate(train, step) == train.lr);
    }
    CHECK(LearningRate(train, steps + 1) < train.lr);
    CHECK(LearningRate(train, train.steps) == Approx(train.lr / 2));
  };
  steady(7);
  train.decay = 0.25;  // 2.5 of 10
  steady(7);
  train.decay = 0.2;
  steady(8);
  train.decay = 1;
  CHECK(LearningRate(train, 9) == train.lr);
  train.decay = 30;
  train.warmup = 4;
  CHECK(LearningRate(train, 4) == train.lr);
  CHECK(LearningRate(train, 5) < train.lr);
  train.decay = 0;
  CHECK(LearningRate(train, 9) == train.lr);
}

TEST_CASE("the rate stays at its end behind the last step, and a run may be all warm-up",
          "[lr][cpu]") {
  CHECK(LearningRate(Recipe("cosine", 3, 0.1), 25) == Approx(3e-5));
  CHECK(LearningRate(Recipe("linear", 3, 0), 25) == 0);
  CHECK(LearningRate(Recipe("cosine", 20, 0), 10) == Approx(1.5e-4));
}

}  // namespace
}  // namespace equipoise
