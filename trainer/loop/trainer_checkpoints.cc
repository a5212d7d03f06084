// What a run keeps in checkpoints, and how it goes on from them.

#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "configs/yaml/config_json.h"
#include "parallel/schedule/plan_hash.h"
#include "trainer/checkpoint/model_checkpoint.h"
#include "trainer/common/agreement.h"
#include "trainer/common/collective_error.h"
#include "trainer/common/durable_file.h"
#include "trainer/device/compute_device.h"
#include "trainer/loop/trainer_parts.h"
#include "trainer/settings/lr_schedule.h"

namespace equipoise {
namespace {

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// The settings of a schedule as a checkpoint has them; those of this run where it has none.
TrainSection SavedSchedule(const Json& settings, TrainSection train) {
  const Json saved = settings.value("train", Json::object());
  const auto take = [&saved](const char* key, auto& field) {
    if (saved.contains(key) && saved[key].is_number()) saved[key].get_to(field);
  };
  take("steps", train.steps);
  take("lr", train.lr);
  take("min_lr", train.min_lr);
  take("warmup", train.warmup);
  train.schedule = saved.value("schedule", train.schedule);
  return train;
}

// Of each source's annotation file, by where its records are: names the file that changed. Whether
// one did at all, `content` tells.
Json FileKeys(const CostIndex& index, size_t sources) {
  std::vector<StableHash> hashes(sources);
  for (int64_t i = 0; i < index.size(); ++i) {
    hashes.at(index[i].source).Add(index[i].offset);
    hashes.at(index[i].source).Add(index[i].bytes);
  }
  Json keys = Json::array();
  for (const StableHash& hash : hashes) keys.push_back(HexDigits(hash.value()));
  return keys;
}

// What becomes of the learning rate where its curve is another; empty where the next step's stays.
std::string OtherRate(const Json& settings, const TrainSection& train, int64_t step) {
  const double was = LearningRate(SavedSchedule(settings, train), step);
  const double now = LearningRate(train, step);
  if (std::abs(was - now) <= 1e-9 * std::abs(was)) return "";
  return fmt::format("; the learning rate of step {} is {:.3g}, and would have been {:.3g}",
                     step + 1, now, was);
}

}  // namespace

void TrainerParts::FindStart(const TrainOptions& options) {
  resumes_itself = options.resume == Resume::kAuto;
  if (options.resume != Resume::kNone) {
    const std::string from = resumes_itself ? config.run.dir : options.resume_from;
    checkpoint = FindCheckpoint(from, *world);
    if (checkpoint.empty() && !resumes_itself)
      throw DataError(from + ": no checkpoint is there; give a step-* folder");
  }
  if (!checkpoint.empty()) return RestorePackLimits();
  if (!resumes_itself) return;
  AgreeOrThrowDataError(*world, [this] {
    if (world->rank() == 0) RefuseLostCheckpoints(config.run.dir, config.checkpoint.every);
  });
}

void TrainerParts::RestorePackLimits() {
  Json sections;
  AgreeOrThrowDataError(
      *world, [&] { sections = ReadCheckpointIndex(checkpoint, /*verify=*/false).sections; });
  const Json saved = sections.value("balance", Json::object());
  const auto keep = [&](int64_t& setting, const char* key) {
    if (saved.contains(key) && saved[key].is_number_unsigned()) setting = saved[key];
  };
  if (config.balance.tiles == 0) keep(config.balance.tiles, "tiles");
  if (config.balance.tokens == 0) keep(config.balance.tokens, "tokens");
  if (config.balance.limits == "search") keep(config.train.global_batch, "global_batch");
}

TrainState TrainerParts::Restore() {
  TrainState state;
  if (checkpoint.empty()) {
    TakeFirstWeights();
    optimizer->TakeMasters();
  } else {
    state = LoadCheckpoint();
  }
  guard = NonFiniteGuard(state.non_finite_in_a_row);
  OpenOutputs(state);
  return state;
}

TrainState TrainerParts::LoadCheckpoint() {
  std::vector<std::string> passed_over;
  for (;;) {
    CheckpointIndex index;
    const auto read = [&] {
      index = ReadCheckpointIndex(checkpoint, /*verify=*/false);
      if (world->rank() == 0) RequirePosition(index.state);
    };
    std::optional<std::string> fault = AgreeOnError(*world, read);
    if (!fault) {
      CheckSections(checkpoint, index.sections, Sections());
      const auto reading = activity.During("reading " + checkpoint);
      fault = AgreeOnError(*world,
                           [&] { ReadModel(checkpoint, index, model->parameters(), *optimizer); });
    }
    if (!fault) {
      TellStart(index);
      return index.state;
    }
    if (!resumes_itself) throw DataError(*fault);
    spdlog::warn("{}; this checkpoint is passed over", *fault);
    passed_over.push_back(checkpoint);
    checkpoint = FindCheckpoint(folder->dir(), *world, passed_over);
    Release();  // masters may have been dropped already
    UsePlan(plan);
  }
}

// A place that the epoch has.
void TrainerParts::RequirePosition(const TrainState& state) const {
  const int64_t packs = MakePlanner().Summarize(state.position.epoch).groups;
  if (state.position.pack <= packs) return;
  throw DataError(
      fmt::format("{}: state: pack {} of epoch {}, which has {}; use another checkpoint",
                  checkpoint, state.position.pack, state.position.epoch, packs));
}

// What differs from the run that wrote the checkpoint, and where this one begins.
void TrainerParts::TellStart(const CheckpointIndex& index) const {
  if (index.settings.empty()) {
    spdlog::info(
        "{}: of format version {}, without a checksum of its index and without settings; read as "
        "it is",
        checkpoint, index.version);
  } else {
    const std::string changed = SettingsDifference(index.settings, Settings());
    if (!changed.empty()) {
      spdlog::warn("settings changed since {}: {}{}", checkpoint, changed,
                   OtherRate(index.settings, config.train, index.state.step));
    }
  }
  const std::string difference = EnvironmentDifference(index.environment, Environment());
  if (!difference.empty()) {
    spdlog::warn(
        "{}: written in another environment ({}); losses will be equal within rounding only",
        checkpoint, difference);
  }
  spdlog::info("going on from {} (step {} of {})", checkpoint, index.state.step,
               config.train.steps);
  if (index.state.step >= config.train.steps) {
    spdlog::warn("nothing left to do: step {} of {}; raise train.steps to train on",
                 index.state.step, config.train.steps);
  }
}

Json TrainerParts::Environment() const {
  return {{"data", plan.data},
          {"pipeline", plan.pipeline},
          {"tensor", plan.tensor},
          {"threads", at::get_num_threads()},
          {"precision", PrecisionName(setup.precision)},
          {"processor", DeviceName(device)}};
}

// What a run must keep in order to go on with the same samples and the same model. Settings that do
// not change either are left out.
Json TrainerParts::Sections() const {
  Json sections = {{"model", ConfigToJson(config.model)}, {"data", ConfigToJson(config.data)}};
  const Json balance = ConfigToJson(config.balance);
  for (const char* key : {"threads", "prefetch", "cache", "costs", "max_bad_share", "eval"}) {
    sections["data"].erase(key);
  }
  sections["data"]["content"] = std::to_string(data->index.hash());
  sections["data"]["files"] = FileKeys(data->index, config.data.train.size());
  sections["train"]["seed"] = config.train.seed;  // of the samples' order
  for (const char* key : {"group", "tiles", "tokens", "min_tiles", "min_tokens", "rounds"}) {
    sections["balance"][key] = balance[key];
  }
  if (prediction.tokens > 0) {  // what was chosen for this machine's memory or speed stays
    sections["balance"]["tiles"] = prediction.tiles;
    sections["balance"]["tokens"] = prediction.tokens;
  }
  if (config.balance.limits == "search")
    sections["balance"]["global_batch"] = config.train.global_batch;
  if (config.balance.window > 0) sections["balance"]["window"] = config.balance.window;
  return sections;
}

// All of the configuration but the name of the folder, which may be moved.
Json TrainerParts::Settings() const {
  Json settings = ConfigToJson(config);
  settings["run"].erase("dir");
  const Json balance = Sections()["balance"];  // limits as they are used
  for (const char* key : {"tiles", "tokens"}) settings["balance"][key] = balance[key];
  return settings;
}

void TrainerParts::Save(const TrainState& state) {
  const auto saving = activity.During(fmt::format("saving step {}", state.step));
  const auto start = std::chrono::steady_clock::now();
  const CheckpointContent content{state, Environment(), Sections(), Settings(),
                                  TensorsToSave(*optimizer)};
  // While steps are skipped the older ones stay: they may be what the run has to go back to.
  const int64_t keep = state.non_finite_in_a_row > 0 ? 0 : config.checkpoint.keep;
  const SavedCheckpoint saved = SaveCheckpoint(folder->dir(), content, keep, *world);
  newest_saved = saved.folder;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  spdlog::info("saved {} ({:.1f} MiB in {:.1f} s)", saved.folder, MiB(saved.bytes), took.count());
}

void TrainerParts::EndForSkippedSteps(const TrainState& state) const {
  std::string marked;
  if (world->rank() == 0 && guard.doubts_weights()) {
    const std::string why = fmt::format("steps {} to {} with these weights were not finite",
                                        state.step + 2 - guard.in_a_row(), state.step + 1);
    for (const std::string& name : MarkUnsound(folder->dir(), state.optimizer_step, why))
      marked += (marked.empty() ? "" : ", ") + name;
  }
  marked = BroadcastText(*world, marked, 0);
  throw CollectiveRunError(
      guard.warning() + "; lower train.lr or look at these samples with `data show`" +
      (marked.empty() ? ""
                      : "; " + marked +
                            " holds these weights: the same command goes on from "
                            "the checkpoint before"));
}

}  // namespace equipoise
