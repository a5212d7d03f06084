#include "trainer/settings/odd_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "balance/groups/group_method.h"
#include "configs/yaml/yaml_writer.h"

namespace equipoise {
namespace {

// Shares below this are mostly rates: other trainers have these keys as such.
constexpr double kLeastShare = 1e-3;

bool LooksLikeARate(double share) { return share > 0 && share < kLeastShare; }

// What to write where a value was meant as a rate.
std::string ForRate(double rate, double lr) {
  return fmt::format("; for a rate of {:.3g} write {:.3g}", rate, rate / lr);
}

void AddRates(const TrainSection& train, std::vector<std::string>* lines) {
  if (train.lr == 0) return;
  if (LooksLikeARate(train.min_lr) && train.schedule != "constant") {
    lines->push_back(fmt::format(
        "train.min_lr: {:.3g} is a share of train.lr {:.3g}, and the rate ends at {:.3g}{}",
        train.min_lr, train.lr, train.min_lr * train.lr,
        train.min_lr <= train.lr ? ForRate(train.min_lr, train.lr) : ""));
  }
  const LearningRateSection& factors = train.lr_factor;
  for (const auto& [name, factor] :
       {std::pair("vision", factors.vision), std::pair("projector", factors.projector),
        std::pair("llm", factors.llm)}) {
    if (!LooksLikeARate(factor)) continue;
    lines->push_back(fmt::format(
        "train.lr_factor.{}: {:.3g} is a factor on train.lr {:.3g}, which makes a rate of {:.3g}{}",
        name, factor, train.lr, factor * train.lr, ForRate(factor, train.lr)));
  }
}

// bf16 has eight bits of a number: a second moment falls by 1 - beta2 of itself at most, and less
// than half a step is rounded away.
void AddMoments(const TrainSection& train, std::vector<std::string>* lines) {
  constexpr double kHalfStep = 1.0 / 256;
  if (train.moments != MomentPrecision::kBf16 || 1 - train.beta2 >= kHalfStep) return;
  lines->push_back(fmt::format(
      "train.moments: bf16 rounds to a step of {:.1f} %, so that with train.beta2: {:g} second "
      "moments rise and never fall; set beta2 to 0.996 or less, or moments to fp32 or 8bit",
      200 * kHalfStep, train.beta2));
}

void AddFrozen(const RunConfig& config, std::vector<std::string>* lines) {
  const std::vector<std::string>& freeze = config.model.freeze;
  const auto frozen = [&](const char* name) {
    return std::find(freeze.begin(), freeze.end(), name) != freeze.end();
  };
  const AdapterSection& adapter = config.model.adapter;
  const LearningRateSection& factors = config.train.lr_factor;
  for (const auto& [name, factor] :
       {std::pair("vision", factors.vision), std::pair("projector", factors.projector),
        std::pair("llm", factors.llm)}) {
    if (factor == 1 || !frozen(name) || !adapter.train.empty() || !config.model.unfreeze.empty())
      continue;
    lines->push_back(fmt::format(
        "train.lr_factor.{}: {:.3g} has no effect: model.freeze has {}; leave one of them out",
        name, factor, name));
  }
  const bool all_frozen = frozen("vision") && config.model.unfreeze.empty();
  if (config.model.drop_path.value_or(0) > 0 && all_frozen && adapter.train.empty()) {
    lines->push_back(fmt::format(
        "model.drop_path: {:.3g} has no effect: blocks that are trained are skipped alone, and "
        "model.freeze has vision; leave one of them out",
        *config.model.drop_path));
  }
  const bool all_linear = adapter.targets == std::vector<std::string>{"all-linear"};
  if (all_linear && frozen("vision") && frozen("llm")) {
    lines->push_back(
        "model.freeze: with vision and llm in it the projector alone gets adapters; adapters "
        "freeze the layers below them by themselves: leave out what shall have some");
  }
}

// How a model that has no tiles to choose takes pictures, and what to do.
const char* WithoutTiles(ImageSpec::Kind kind) {
  switch (kind) {
    case ImageSpec::Kind::kNative:
      return "takes pictures at about their own size; set data.pixels, or leave it out";
    case ImageSpec::Kind::kSquare:
      return "takes a picture as one square; leave it out";
    case ImageSpec::Kind::kAnyRes:
      return "takes pictures in the resolutions that its folder lists; leave it out";
    case ImageSpec::Kind::kNone:
      return "takes no pictures; leave it out";
    case ImageSpec::Kind::kTiles:
      break;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> OddSettings(const RunConfig& config, const ImageSpec& images) {
  std::vector<std::string> lines;
  AddRates(config.train, &lines);
  AddMoments(config.train, &lines);
  AddFrozen(config, &lines);
  if (const char* way = WithoutTiles(images.kind);
      way != nullptr && !EqualConfig(config.data.tiles, TilesConfig())) {
    lines.push_back(fmt::format("data.tiles: has no effect on this model, which {}", way));
  }
  if (config.train.micro_batch != TrainSection().micro_batch &&
      !HasFixedSamples(config.balance.group)) {
    lines.push_back(fmt::format(
        "train.micro_batch: {} has no effect with balance.group: {}, whose packs have as many "
        "samples as fit; set balance.group: random or length_grouped, or leave it out",
        config.train.micro_batch, ToString(config.balance.group)));
  }
  return lines;
}

}  // namespace equipoise
