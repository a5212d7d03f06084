#include "trainer/planner/plan_yaml.h"

#include <fmt/format.h>

#include <string_view>

namespace equipoise {
namespace {

// Lists the fields of a plan that a configuration takes.
struct SettingLister {
  std::vector<PlanSetting> settings;
  EncoderPlacement encoder = EncoderPlacement::kInline;
  int shards = 1;  // ranks that share out one copy of the state
  template <class T>
  void operator()(std::string_view name, const T& value, const char* /*help*/) {
    // What is left out would be planned anew: all of the ranks are a number too.
    const std::string text = name == "zero_ranks" ? fmt::to_string(shards) : PlanFieldText(value);
    const bool inline_encoder = text == (name == "encoder" ? "inline" : "0");
    if (name.substr(0, 7) == "encoder" && inline_encoder) return;
    if (name == "context" && text == "1") return;
    if (name == "zero_ranks" && shards < 2) return;  // no state is shared out
    // Apart it always has one stage a rank, and the tensor ranks of the language model.
    const bool apart = encoder == EncoderPlacement::kDisaggregated;
    if (apart && (name == "encoder_chunks" || name == "encoder_tensor")) return;
    settings.push_back(
        {name == "recompute_layers" ? "balance" : "parallel", std::string(name), text});
  }
};

}  // namespace

std::vector<PlanSetting> PlanSettings(const Plan& plan) {
  SettingLister lister;
  lister.encoder = plan.encoder;
  lister.shards = plan.shards();
  plan.VisitFields(lister);
  return lister.settings;
}

std::string PlanToYaml(const Plan& plan, const PlanPrediction& prediction, bool runs_ahead) {
  std::string parallel, balance;
  for (const PlanSetting& setting : PlanSettings(plan)) {
    std::string& section = setting.section == "balance" ? balance : parallel;
    section += fmt::format("  {}: {}\n", setting.key, setting.value);
  }
  if (runs_ahead) parallel += "  prefetch: true\n";
  std::string text = fmt::format("parallel:\n{}balance:\n", parallel);
  if (prediction.tokens > 0) {
    text += fmt::format("  tiles: {}\n  tokens: {}\n", prediction.tiles, prediction.tokens);
  }
  text += balance;
  if (prediction.global_batch > 0) {
    text += fmt::format("train:\n  global_batch: {}\n", prediction.global_batch);
  }
  if (prediction.step_s > 0) {
    text += fmt::format("predicted:\n  step_s: {:g}\n  error_band: {:g}\n  peak_bytes: {}\n",
                        prediction.step_s, prediction.error_band, prediction.peak_bytes);
  }
  return text;
}

}  // namespace equipoise
