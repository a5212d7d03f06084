#include "trainer/settings/diloco.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Within a round a model has weights that are no outer ones: those of a checkpoint, and of an
// export, are the outer ones.
void RequireBetweenRounds(const char* key, int64_t steps, int64_t every) {
  if (steps % every == 0) return;
  throw ConfigError(
      fmt::format("{}: {} steps end within a round of train.diloco.every {}, whose weights no "
                  "export has; use a multiple of {}",
                  key, steps, every, every));
}

}  // namespace

int RanksOfIsland(const RunConfig& config, int ranks) {
  const DilocoSection& diloco = config.train.diloco;
  if (diloco.on()) {
    if (config.eval.epochs > 0) {
      throw ConfigError(
          "eval.epochs: passes over the data end within rounds of train.diloco, whose weights no "
          "export has; set eval.every, a multiple of train.diloco.every, in its place");
    }
    RequireBetweenRounds("eval.every", config.eval.every, diloco.every);
    RequireBetweenRounds("eval.answer_every", config.eval.answer_every, diloco.every);
  }
  if (diloco.islands == 1) return ranks;
  if (!diloco.on()) {
    throw ConfigError(
        fmt::format("train.diloco.every: {} islands that never meet; set the number of steps that "
                    "each takes by itself, such as 100",
                    diloco.islands));
  }
  if (ranks % diloco.islands != 0) {
    throw ConfigError(
        fmt::format("train.diloco.islands: {} rank{} cannot be shared out to {} islands of as many "
                    "each; start, "
                    "or plan with --ranks, a multiple of {}",
                    ranks, ranks == 1 ? "" : "s", diloco.islands, diloco.islands));
  }
  if (config.train.global_batch % diloco.islands != 0) {
    throw ConfigError(
        fmt::format("train.global_batch: {} packs cannot be dealt to {} islands; use a multiple "
                    "of {}",
                    config.train.global_batch, diloco.islands, diloco.islands));
  }
  const GoalSection& goal = config.goal;
  if (goal.max_gpus || goal.budget.value_or(0) > 0) {
    throw ConfigError(fmt::format(
        "goal.{}: a plan is made for one of {} islands, whose number of ranks is given; leave it "
        "out",
        goal.max_gpus ? "max_gpus" : "budget", diloco.islands));
  }
  return static_cast<int>(ranks / diloco.islands);
}

RunConfig OfIsland(RunConfig config) {
  config.train.global_batch /= config.train.diloco.islands;
  config.train.diloco.islands = 1;
  return config;
}

bool IsWithinRound(const TrainSection& train, int64_t step) {
  return train.diloco.on() && step % train.diloco.every != 0 && step != train.steps;
}

std::string DescribeIslands(const RunConfig& config, int ranks) {
  const int64_t islands = config.train.diloco.islands;
  if (islands == 1) return "";
  return fmt::format("{} islands of {} rank{}", islands, ranks / islands,
                     ranks == islands ? "" : "s");
}

}  // namespace equipoise
