#include "trainer/loop/checkpointer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "balance/groups/group_method.h"
#include "configs/base/error.h"
#include "configs/yaml/config_json.h"
#include "models/ops/matrix_product.h"
#include "parallel/comm/values.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/plan_hash.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/checkpoint/model_checkpoint.h"
#include "trainer/common/agreement.h"
#include "trainer/common/collective_error.h"
#include "trainer/common/durable_file.h"
#include "trainer/device/compute_device.h"
#include "trainer/loop/first_weights.h"
#include "trainer/outputs/run_folder.h"
#include "trainer/run/same_model.h"
#include "trainer/settings/diloco.h"
#include "trainer/settings/lr_schedule.h"

namespace equipoise {
namespace {

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Settings of the learning rate's schedule in a checkpoint; this run's where it has none.
TrainSection SavedSchedule(const Json& settings, TrainSection train) {
  const Json saved = settings.value("train", Json::object());
  const auto take = [&saved](const char* key, auto& field) {
    if (saved.contains(key) && saved[key].is_number()) saved[key].get_to(field);
  };
  take("steps", train.steps);
  take("lr", train.lr);
  take("min_lr", train.min_lr);
  take("warmup", train.warmup);
  take("decay", train.decay);
  train.schedule = saved.value("schedule", train.schedule);
  return train;
}

std::optional<IslandModel> IslandOf(Replica& replica, const Islands& islands,
                                    bool within_round = false) {
  if (replica.outer() == nullptr) return std::nullopt;
  return IslandModel{*replica.outer(), islands.number(), within_round};
}

template <class T>
const T* Pointer(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

// A hash of each source's annotation file, of the places of its records. These name the file that
// has changed; `content` decides whether any has.
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

// Describes the change of the next step's learning rate; empty where there is none.
std::string OtherRate(const Json& settings, const TrainSection& train, int64_t step) {
  const double was = LearningRate(SavedSchedule(settings, train), step);
  const double now = LearningRate(train, step);
  if (std::abs(was - now) <= 1e-9 * std::abs(was)) return "";
  return fmt::format("; the learning rate of step {} is {:.3g}, and would have been {:.3g}",
                     step + 1, now, was);
}

}  // namespace

Checkpointer::Checkpointer(RunContext& context, const RunData& data, const TrainOptions& options)
    : context_(context),
      data_(data),
      chooses_(options.resume == Resume::kAuto),
      adapter_(ConfigToJson(options.config.model.adapter)) {
  const RunConfig& config = context.config;
  if (data.model_config().lora.on()) {
    AgreeOrThrowDataError(context.world(), [&] {
      base_ = BaseIdentity(config.model, static_cast<uint64_t>(config.train.seed));
    });
  }
  if (options.resume != Resume::kNone) {
    const std::string from = chooses_ ? config.run.dir : options.resume_from;
    AgreeOrThrowRunError(context.world(), [&] {
      if (context.rank() == 0) FinishReplacing(config.run.dir);
    });
    start_ = FindCheckpoint(from, context.world());
    if (start_.empty() && !chooses_)
      throw DataError(from + ": no checkpoint is there; give a step-* folder");
  }
  if (!start_.empty()) {
    RequireSameCheckpoint(context.world(), start_);
    RestoreLimits();
  } else if (chooses_) {
    AgreeOrThrowDataError(context.world(), [&] {
      if (context.rank() == 0) RefuseLostCheckpoints(config.run.dir, data.SavesEvery());
    });
  }
}

void Checkpointer::RestoreLimits() {
  Json sections;
  AgreeOrThrowDataError(context_.world(), [&] {
    const CheckpointIndex index = ReadCheckpointIndex(start_, /*verify=*/false);
    sections = index.sections;
    taken_ = {index.state.step, index.state.packs};
  });
  RunConfig& config = context_.config;
  const Json saved = sections.value("balance", Json::object());
  const auto keep = [&](int64_t& setting, const char* key) {
    if (saved.contains(key) && saved[key].is_number_unsigned()) setting = saved[key];
  };
  if (config.balance.tiles == 0) keep(config.balance.tiles, "tiles");
  if (config.balance.tokens == 0) keep(config.balance.tokens, "tokens");
  if (config.balance.limits == "search") keep(config.train.global_batch, "global_batch");
}

void Checkpointer::CheckStart() const {
  CheckSections(start_, ReadCheckpointIndex(start_, /*verify=*/false).sections, Sections());
}

TrainState Checkpointer::Restore(Replica& replica) {
  TrainState state;
  if (start_.empty()) {
    TakeFirstWeights(context_, data_.model_config(), replica.model().parameters());
    replica.optimizer().TakeMasters();
    if (replica.outer() != nullptr) replica.outer()->Begin();
  } else {
    state = Load(replica);
    ForgetLostBest(state);
    if (!chooses_) {
      AgreeOrThrowRunError(context_.world(), [&] {
        if (context_.rank() == 0) GoBackTo(context_.config.run.dir, start_);
      });
    }
    if (state.packs < 0) state.packs = state.step * context_.config.train.global_batch;
  }
  replica.guard = NonFiniteGuard(state.non_finite_in_a_row, state.non_finite_tried);
  if (replica.scaler.on() && state.loss_scale) replica.scaler.Restore(*state.loss_scale);
  return state;
}

// A best that is no more there, since the run has gone back behind a better one or this is another
// run's folder, is no rival.
void Checkpointer::ForgetLostBest(TrainState& state) const {
  if (!state.best) return;
  const std::string& dir = context_.config.run.dir;
  const bool lost = context_.rank() == 0 && !HasCheckpointOf(dir, state.best->step);
  if (AllReduceValue<int64_t>(context_.world(), lost ? 1 : 0, ReduceOp::kMax) == 0) return;
  spdlog::info("checkpoint.best: {} {:.4g} was of step {}, which {} has not; the next is the best",
               state.best->measure, state.best->value, state.best->step, dir);
  state.best.reset();
}

TrainState Checkpointer::Load(Replica& replica) {
  std::vector<std::string> passed_over;
  for (;;) {
    CheckpointIndex index;
    at::Tensor of_island;
    const auto read = [&] {
      index = ReadCheckpointIndex(start_, /*verify=*/false);
      if (context_.rank() == 0) RequirePosition(index.state, replica.plan());
    };
    std::optional<std::string> fault = AgreeOnDataError(context_.world(), read);
    if (!fault) {
      CheckSections(start_, index.sections, Sections());
      // The checkpoint has the adapters alone.
      if (data_.model_config().lora.on())
        TakeFirstWeights(context_, data_.model_config(), replica.model().parameters());
      const auto reading = context_.activity.During("reading " + start_);
      fault = AgreeOnDataError(context_.world(), [&] {
        const std::optional<IslandModel> island = IslandOf(replica, context_.islands);
        ReadModel(start_, index, replica.model().parameters(), replica.optimizer(),
                  Pointer(island));
        if (island) of_island = ReadRound(start_, index, replica.optimizer(), *island);
        if (WeightVersions* versions = replica.model().part().versions())
          ReadPreviousWeights(start_, index, replica.model().parameters(), *versions);
      });
    }
    if (!fault) {
      if (replica.outer() != nullptr) GoOnWithin(index.state.step, of_island, *replica.outer());
      LogStart(index, replica.plan());
      return index.state;
    }
    if (!chooses_) throw DataError(*fault);
    spdlog::warn("{}", PassingOver(*fault));
    passed_over.push_back(start_);
    start_ = FindCheckpoint(context_.config.run.dir, context_.world(), passed_over);
    if (!start_.empty()) RequireSameCheckpoint(context_.world(), start_);
    replica.Rebuild();  // masters may have been dropped already
  }
}

// In a round of train.diloco with what the model had in it; with no step to come, with the weights
// that `export` takes.
void Checkpointer::GoOnWithin(int64_t step, const at::Tensor& model, OuterOptimizer& outer) const {
  const bool over = step >= context_.config.train.steps;
  const bool within = !model.is_same(outer.weights());
  outer.SetModel(over ? outer.weights() : model);
  if (!over || !within) return;
  spdlog::warn(
      "step {} is within a round of train.diloco: what is measured and exported are the weights "
      "that "
      "the round began with; raise train.steps to end it",
      step);
}

// Throws DataError where the state's position is not in its epoch.
void Checkpointer::RequirePosition(const TrainState& state, const Plan& plan) const {
  const EpochPacker packer = data_.MakePacker(context_.islands.count() * plan.data());
  const int64_t packs = packer.Summarize(state.position.epoch).groups;
  if (state.position.pack <= packs) return;
  throw DataError(
      fmt::format("{}: state: pack {} of epoch {}, which has {}; use another checkpoint", start_,
                  state.position.pack, state.position.epoch, packs));
}

// Logs the differences to the run that wrote the checkpoint, and the step to resume from.
void Checkpointer::LogStart(const CheckpointIndex& index, const Plan& plan) const {
  const TrainSection& train = context_.config.train;
  if (index.settings.empty()) {
    spdlog::info(
        "{}: of format version {}, without a checksum of its index and without settings; read as "
        "it is",
        start_, index.version);
  } else {
    const std::string changed = SettingsDifference(index.settings, Settings());
    if (!changed.empty()) {
      spdlog::warn("settings changed since {}: {}{}", start_, changed,
                   OtherRate(index.settings, train, index.state.step));
    }
  }
  WarnOfOtherOrder(index, plan);
  const std::string difference = EnvironmentDifference(index.environment, Environment(plan));
  if (!difference.empty()) {
    spdlog::warn(
        "{}: written in another environment ({}); losses will be equal within rounding only",
        start_, difference);
  }
  spdlog::info("going on from {} (step {} of {})", start_, index.state.step, train.steps);
  if (index.state.step >= train.steps) {
    const bool answers = !context_.config.eval.answers.empty();
    spdlog::warn("{}: step {} of {}; raise {} to train on",
                 answers ? "nothing left but answers" : "nothing left to do", index.state.step,
                 train.steps, train.epochs > 0 ? "train.epochs" : "train.steps");
  }
}

// What is left of an epoch is what its order has left: these methods order it by global_batch.
void Checkpointer::WarnOfOtherOrder(const CheckpointIndex& index, const Plan& plan) const {
  const GroupMethod method = context_.config.balance.group;
  if (method != GroupMethod::kIsfPlus && method != GroupMethod::kLengthGrouped) return;
  const int64_t batch = context_.config.train.global_batch;
  const Json::json_pointer key("/train/global_batch");
  if (!index.settings.contains(key) || index.settings[key] == batch) return;
  const DataPosition& position = index.state.position;
  const EpochPacker packer = data_.MakePacker(context_.islands.count() * plan.data());
  if (position.pack == 0 || position.pack >= packer.Summarize(position.epoch).groups) return;
  spdlog::warn(
      "train.global_batch: epoch {} is in another order now: of what is left of it some "
      "samples come again, and others not",
      position.epoch + 1);
}

Json Checkpointer::Environment(const Plan& plan) const {
  Json environment = {{"data", plan.data()},
                      {"pipeline", plan.pipeline()},
                      {"tensor", plan.tensor()},
                      {"threads", at::get_num_threads()},
                      {"precision", ToString(context_.setup.precision)},
                      {"processor", DeviceName(context_.device())}};
  if (plan.sequence) environment["sequence"] = true;
  if (plan.context() > 1) environment["context"] = plan.context();
  if (context_.device().is_cpu() && ops::ProductsAreOneDnns()) environment["products"] = "onednn";
  return environment;
}

// The settings that a resumed run must share, to continue with the same samples and the same model.
// Settings that change neither are left out.
Json Checkpointer::Sections() const {
  const RunConfig& config = context_.config;
  Json sections = {{"model", ConfigToJson(config.model)}, {"data", ConfigToJson(config.data)}};
  sections["model"]["adapter"] = adapter_;
  const Json balance = ConfigToJson(config.balance);
  for (const char* key : {"threads", "prefetch", "cache", "costs", "max_bad_share", "eval"}) {
    sections["data"].erase(key);
  }
  sections["data"]["content"] = std::to_string(data_.index().hash());
  sections["data"]["files"] = FileKeys(data_.index(), config.data.train.size());
  sections["train"]["seed"] = config.train.seed;  // of the samples' order
  if (config.train.diloco.on()) sections["train"]["diloco"]["islands"] = context_.islands.count();
  if (HasFixedSamples(config.balance.group))
    sections["train"]["micro_batch"] = config.train.micro_batch;
  if (data_.model_config().lora.on()) {  // wherever the base lies now
    for (const char* key : {"hf", "vision", "llm"}) sections["model"].erase(key);
    sections["model"]["projector"].erase("weights");
    sections["model"]["base_weights"] = base_;
  }
  for (const char* key : {"group", "tiles", "tokens", "min_tiles", "min_tokens", "rounds"}) {
    sections["balance"][key] = balance[key];
  }
  if (data_.limits().tokens > 0) {  // limits chosen for this machine's memory or speed are kept
    sections["balance"]["tiles"] = data_.limits().tiles;
    sections["balance"]["tokens"] = data_.limits().tokens;
  }
  if (config.balance.limits == "search")
    sections["balance"]["global_batch"] = config.train.global_batch;
  if (config.balance.window > 0) sections["balance"]["window"] = config.balance.window;
  return sections;
}

// The whole configuration except the run folder's name, as the folder may be moved, and what was
// found of the machines, which a resumed run finds anew.
Json Checkpointer::Settings() const {
  Json settings = ConfigToJson(context_.config);
  settings["cluster"] = ConfigToJson(context_.given_cluster);
  settings["run"].erase("dir");
  settings["model"]["adapter"] = adapter_;
  const Json balance = Sections()["balance"];  // limits as they are used
  for (const char* key : {"tiles", "tokens"}) settings["balance"][key] = balance[key];
  return settings;
}

void Checkpointer::Save(const TrainState& state, Replica& replica) {
  const auto saving = context_.activity.During(fmt::format("saving step {}", state.step));
  const auto begun = std::chrono::steady_clock::now();
  const RunConfig& config = context_.config;
  const std::optional<IslandModel> island =
      IslandOf(replica, context_.islands, IsWithinRound(config.train, state.step));
  CheckpointContent content{state, Environment(replica.plan()), Sections(), Settings(),
                            TensorsToSave(replica.optimizer(), Pointer(island))};
  if (const WeightVersions* versions = replica.model().part().versions())
    AddPreviousWeights(replica.optimizer(), *versions, content.tensors);
  // While steps are skipped no older checkpoint is deleted: the run may have to go back to one.
  const int64_t keep = state.non_finite_in_a_row > 0 ? 0 : config.checkpoint.keep;
  const SavedCheckpoint saved = SaveCheckpoint(config.run.dir, content, keep, context_.world());
  newest_ = saved.folder;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  spdlog::info("saved {} ({:.1f} MiB in {:.1f} s)", saved.folder, MiB(saved.bytes), took.count());
}

void Checkpointer::EndForSkippedSteps(const TrainState& state, const NonFiniteGuard& guard) const {
  std::string marked;
  if (context_.rank() == 0 && guard.doubts_weights()) {
    const std::string why = fmt::format("steps {} to {} with these weights were not finite",
                                        state.step + 2 - guard.in_a_row(), state.step + 1);
    // With delayed updates the row's first step was of the weights before the last update.
    const bool delayed = DelaysUpdates(context_.config.parallel.schedule.value_or(""));
    std::vector<std::string> names;
    for (int64_t step = state.optimizer_step - (delayed ? 1 : 0); step <= state.optimizer_step;
         ++step) {
      for (std::string& name : MarkUnsound(context_.config.run.dir, step, why))
        names.push_back(std::move(name));
    }
    marked = fmt::format("{}", fmt::join(names, ", "));
  }
  marked = BroadcastText(context_.world(), marked, 0);
  throw CollectiveRunError(
      guard.warning() + "; lower train.lr or look at these samples with `data show`" +
      (marked.empty() ? ""
                      : "; " + marked +
                            " holds these weights: the same command goes on from "
                            "the checkpoint before"));
}

}  // namespace equipoise
