#include "trainer/planner/plan_yaml.h"

#include <fmt/format.h>

#include <string_view>

namespace equipoise {
namespace {

// Lists the fields of a plan that a configuration takes.
struct SettingLister {
  std::vector<PlanSetting> settings;
  EncoderPlacement encoder = EncoderPlacement::kInline;
  std::string tensor;  // tensor ranks of the language model
  template <class T>
  void operator()(std::string_view name, const T& value, const char* /*help*/) {
    const std::string text = PlanFieldText(value);
    const bool inline_encoder = text == (name == "encoder" ? "inline" : "0");
    if (name.substr(0, 7) == "encoder" && inline_encoder) return;
    if ((name == "context" && text == "1") || (name == "zero_ranks" && text == "0")) return;
    const bool apart = encoder == EncoderPlacement::kDisaggregated;
    if (name == "encoder_chunks" && apart) return;  // always one
    if (name == "encoder_tensor" && (apart || text == tensor)) return;
    if (name == "tensor") tensor = text;
    settings.push_back(
        {name == "recompute_layers" ? "balance" : "parallel", std::string(name), text});
  }
};

}  // namespace

std::vector<PlanSetting> PlanSettings(const Plan& plan) {
  SettingLister lister;
  lister.encoder = plan.encoder;
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
