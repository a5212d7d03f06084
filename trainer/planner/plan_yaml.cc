#include "trainer/planner/plan_yaml.h"

#include <fmt/format.h>

#include <string_view>

namespace equipoise {
namespace {

// Writes the fields of a plan as lines of the sections of a configuration to which they belong.
struct SectionLines {
  std::string parallel, balance;
  std::string tensor;  // tensor ranks of the language model
  template <class T>
  void operator()(std::string_view name, const T& value, const char* /*help*/) {
    std::string& section = name == "recompute_layers" ? balance : parallel;
    const std::string text = PlanFieldText(value);
    const bool inline_encoder = text == (name == "encoder" ? "inline" : "0");
    if (name.substr(0, 7) == "encoder" && inline_encoder) return;
    if ((name == "context" && text == "1") || (name == "zero_ranks" && text == "0")) return;
    const bool apart = section.find("encoder: disaggregated") != std::string::npos;
    if (name == "encoder_chunks" && apart) return;  // always one
    if (name == "encoder_tensor" && (apart || text == tensor)) return;
    if (name == "tensor") tensor = text;
    section += fmt::format("  {}: {}\n", name, text);
  }
};

}  // namespace

std::string PlanToYaml(const Plan& plan, const PlanPrediction& prediction, bool runs_ahead) {
  SectionLines lines;
  plan.VisitFields(lines);
  if (runs_ahead) lines.parallel += "  prefetch: true\n";
  std::string text = fmt::format("parallel:\n{}balance:\n", lines.parallel);
  if (prediction.tokens > 0) {
    text += fmt::format("  tiles: {}\n  tokens: {}\n", prediction.tiles, prediction.tokens);
  }
  text += lines.balance;
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
