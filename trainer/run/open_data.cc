#include "trainer/run/open_data.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/spec/layer_spec.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/values.h"
#include "trainer/common/agreement.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/vocabulary.h"

namespace equipoise {
namespace {

void CheckSettings(const RunConfig& config) {
  const EvalSection& eval = config.eval;
  const char* given = eval.every > 0 ? "every" : eval.epochs > 0 ? "epochs" : nullptr;
  const bool answers = given != nullptr && eval.every == 0 && !eval.answers.empty();
  if (given != nullptr && config.data.eval.empty() && !answers) {
    throw ConfigError(fmt::format(
        "eval.{0}: data.eval names no held-out data to measure on; give it, or leave eval.{0} out",
        given));
  }
  const TilesConfig& tiles = config.data.tiles;
  if (tiles.min <= tiles.max) return;
  throw ConfigError(
      fmt::format("data.tiles.min: {} is above data.tiles.max {}; lower one or raise the other",
                  tiles.min, tiles.max));
}

// Logs the progress at most every five seconds.
class IndexProgress {
 public:
  void operator()(double share) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::seconds(5)) return;
    last_ = now;
    spdlog::info("cost index: {:.0f} %", 100 * share);
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void RequireSameData(Communicator& world, const std::string& annotations,
                     const std::string& otherwise, uint64_t hash) {
  const std::vector<std::string> all = GatherText(world, std::to_string(hash));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ConfigError(fmt::format("{}: rank {} {}", annotations, rank, otherwise));
  }
}

OpenedCostIndex OpenIndex(const RunConfig& config, const std::vector<SourceConfig>& sources,
                          const OpenedData& data, Communicator& world,
                          const OpenDataOptions& options) {
  CostIndexOptions build;
  build.images = SampleOptionsOf(config.data, data.model_config).images;
  build.slice = world.rank();
  build.slices = world.size();
  build.any_rank = [&world](bool value) { return AnyRank(world, value); };
  build.require_same = [&](const std::string& otherwise, uint64_t hash) {
    RequireSameData(world, sources[0].annotations, otherwise, hash);
  };
  build.on_all = [&world](const std::function<void()>& work) {
    AgreeOrThrowDataError(world, work);
  };
  build.of_first = [&world](const std::string& text) { return BroadcastText(world, text, 0); };
  build.collect = [&world](const std::string& text) { return CollectText(world, text); };
  build.progress = IndexProgress();
  build.notice = [](const std::string& text) { spdlog::warn("{}", text); };
  build.fallback_folder = config.run.dir + "/cache";
  build.rebuild = options.rebuild;
  build.enforce_bad_share = options.enforce_bad_share;
  build.flag = options.flag;
  return OpenCostIndex(sources, config.data, data.chat_template, build);
}

}  // namespace

OpenedData::OpenedData(const RunConfig& config, const std::vector<SourceConfig>& sources,
                       Communicator& world, const OpenDataOptions& options)
    : model_config(ModelConfigOf(config)),
      tokenizer(ReadTokenizer(config, model_config)),
      chat_template(config.data.chat_template, config.data.system, &tokenizer,
                    model_config.image_token_id, ChatOptionsOf(config.data)),
      opened((CheckSettings(config),
              CheckVocabulary(TokenizerPath(config), model_config, tokenizer, chat_template),
              OpenIndex(config, sources, *this, world, options))),
      index(opened.index),
      dataset(sources, SampleOptionsOf(config.data, model_config), &index, &chat_template,
              config.train.loss) {
  if (model_config.image_token_id < 0) model_config.image_token_id = chat_template.image_token();
}

void RequirePicturesToTrain(const RunConfig& config, const OpenedData& data) {
  const std::vector<std::string>& frozen = config.model.freeze;
  for (const LayerSpec& spec : LayerSpecs(data.model_config)) {
    if (spec.component == Component::kLanguageModel && IsTrained(spec, frozen)) return;
  }
  for (int64_t sample = 0; sample < data.index.size(); ++sample) {
    if (data.index[sample].patches > 0) return;
  }
  throw ConfigError(fmt::format(
      "model.{}: trains the encoder and the projector alone, and no record of data.train has a "
      "picture or a video; give records with pictures, or train the llm too",
      std::find(frozen.begin(), frozen.end(), "llm") == frozen.end() ? "adapter" : "freeze"));
}

void QuarantineDefects(const OpenedData& data, Quarantine& quarantine,
                       const std::function<void()>& alive) {
  for (int64_t sample = 0; sample < data.index.size(); ++sample) {
    const Defect defect = data.index[sample].defect;
    if (defect == Defect::kNone || defect == Defect::kTooLong) continue;
    alive();
    if (quarantine.Has(data.dataset.Locate(sample, "", ""))) continue;
    const ScannedSample scanned = data.dataset.Scan(sample);
    // A picture may be readable again by now, but the index excludes the record.
    const std::string reason = scanned.defect == Defect::kNone
                                   ? std::string(DefectName(defect)) + " while indexing"
                                   : scanned.reason;
    quarantine.Add(data.dataset.Locate(sample, scanned.record.id, reason), std::nullopt, 0);
  }
}

}  // namespace equipoise
