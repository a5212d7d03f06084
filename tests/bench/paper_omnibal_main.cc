// The rows of OmniBal's tables through planner and simulator. Started by
// scripts/bench/paper_omnibal, which prints the table; here a JSON object a line.
//
//   paper_omnibal HISTOGRAM STEPS       STEPS: of an epoch that are simulated

#include <cstdio>
#include <exception>
#include <functional>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/presets.h"
#include "tests/bench/paper_omnibal.h"

namespace equipoise::testing {
namespace {

// Published GPU days (research summaries of the paper; docs/cost_model.md).
constexpr double kZero3Random = 38.9, kMegatronRandom = 61.8;

const PaperRow kBaseline = {PartitionRule::kParameters, RecomputeRule::kFull, false};
const PaperRow kPartitioned = {PartitionRule::kBalanced, RecomputeRule::kFull, false};
const PaperRow kOmniBal = {PartitionRule::kBalanced, RecomputeRule::kAdaptive, false};
const PaperRow kOurs = {PartitionRule::kBalanced, RecomputeRule::kAdaptive, true};

// Of one model.
struct Setting {
  ModelConfig model;
  double samples = 0;
  PaperBatches random, isf, isf_plus;

  Setting(const std::string& preset, const std::string& histogram, int steps)
      : model(PresetConfig(preset)) {
    const std::vector<SampleSize> sizes = ReadHistogram(histogram, model);
    samples = static_cast<double>(sizes.size());
    random = MakeBatches(sizes, GroupMethod::kRandom, model, steps);
    isf = MakeBatches(sizes, GroupMethod::kIsf, model, steps);
    isf_plus = MakeBatches(sizes, GroupMethod::kIsfPlus, model, steps);
  }

  double Zero3(const PaperConstants& constants, const PaperBatches& batches) const {
    return GpuDays(Zero3StepSeconds(model, constants, batches), samples, batches);
  }
  double Pipeline(const PaperConstants& constants, const PaperRow& row, const PaperBatches& batches,
                  Plan* used = nullptr) const {
    const Cluster cluster = PaperCluster(constants);
    const Plan plan = PaperPlan(model, cluster, row, batches);
    if (used != nullptr) *used = plan;
    return GpuDays(PipelineStepSeconds(model, cluster, plan, batches), samples, batches);
  }
};

// The argument at which a falling function has the value; its ends where it has it nowhere.
double Solve(const std::function<double(double)>& falling, double value, double low, double high) {
  for (int i = 0; i < 12; ++i) {
    const double middle = (low + high) / 2;
    (falling(middle) > value ? low : high) = middle;
  }
  return (low + high) / 2;
}

PaperConstants Fit(const Setting& setting) {
  PaperConstants constants;
  const auto megatron = [&](double kernels) {
    PaperConstants tried = constants;
    tried.kernels = kernels;
    return setting.Pipeline(tried, kBaseline, setting.random);
  };
  constants.kernels = Solve(megatron, kMegatronRandom, 0.3, 1.2);
  const auto zero3 = [&](double hidden) {
    PaperConstants tried = constants;
    tried.waiting = 1 - hidden;
    return setting.Zero3(tried, setting.random);
  };
  constants.waiting = 1 - Solve(zero3, kZero3Random, 0, 1);
  return constants;
}

void Print(const char* model, const char* row, double paper, double days) {
  const Json line = {{"model", model}, {"row", row}, {"paper", paper}, {"simulated", days}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

std::string Describe(const Plan& plan) {
  std::string text = "data " + std::to_string(plan.data()) + ", tensor " +
                     std::to_string(plan.tensor()) + ", pipeline " +
                     std::to_string(plan.pipeline()) + ", " + plan.schedule + ", chunks " +
                     std::to_string(plan.chunks()) + ", ZeRO " +
                     std::to_string(ZeroStage(plan.sharded)) + ", stages";
  for (const int begin : plan.stage_begins) text += " " + std::to_string(begin);
  int again = 0;
  for (const Recompute kind : plan.recompute) again += kind != Recompute::kNone ? 1 : 0;
  return text + ", layers computed again " + std::to_string(again);
}

void PrintRows(const char* name, const Setting& setting, const PaperConstants& fitted,
               const std::vector<double>& paper) {
  Print(name, "ZeRO-3", paper[0], setting.Zero3(fitted, setting.random));
  Print(name, "ZeRO-3, data", paper[1], setting.Zero3(fitted, setting.isf));
  Print(name, "Megatron", paper[2], setting.Pipeline(fitted, kBaseline, setting.random));
  Print(name, "Megatron, data", paper[3], setting.Pipeline(fitted, kBaseline, setting.isf));
  Print(name, "Megatron, data + model", paper[4],
        setting.Pipeline(fitted, kPartitioned, setting.isf));
  Print(name, "Megatron, data + model + memory", paper[5],
        setting.Pipeline(fitted, kOmniBal, setting.isf));
}

// OmniBal's best row and our plan at one set of constants.
void PrintOurs(const char* name, const Setting& setting, PaperConstants constants, double factor) {
  constants.kernels *= factor;
  constants.links *= factor;
  Plan theirs, ours;
  const double omnibal = setting.Pipeline(constants, kOmniBal, setting.isf, &theirs);
  const double best = setting.Pipeline(constants, kOurs, setting.isf_plus, &ours);
  const Json line = {{"model", name}, {"constants", factor},    {"omnibal", omnibal},
                     {"ours", best},  {"plan", Describe(ours)}, {"omnibal_plan", Describe(theirs)}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void Run(const std::string& histogram, int steps) {
  const Setting small("internvl2-26b", histogram, steps), large("internvl2-40b", histogram, steps);
  const PaperConstants fitted = Fit(small);
  const Json line = {{"kernels", fitted.kernels}, {"waiting", fitted.waiting}};
  std::printf("%s\n", line.dump().c_str());
  // 0: not published.
  PrintRows("6+20B", small, fitted, {kZero3Random, 25.3, kMegatronRandom, 51.9, 29.0, 21.3});
  PrintRows("6+34B", large, fitted, {54.3, 35.5, 75.4, 0, 0, 30.5});
  for (const double factor : {1.0, 0.8, 1.2}) PrintOurs("6+20B", small, fitted, factor);
  PrintOurs("6+34B", large, fitted, 1.0);
}

}  // namespace
}  // namespace equipoise::testing

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s HISTOGRAM STEPS\n", argv[0]);
    return 2;
  }
  try {
    equipoise::testing::Run(argv[1], std::stoi(argv[2]));
  } catch (const equipoise::UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {  // a number that is none
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
