#include "trainer/doctor/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "balance/search/plan_search.h"
#include "models/families/families.h"
#include "parallel/schedule/builders.h"
#include "trainer/planner/plan_run.h"
#include "trainer/planner/plan_yaml.h"

namespace equipoise {
namespace {

constexpr double kLeastGain = 0.005;
constexpr int64_t kMore = 4;  // threads, or steps between checkpoints, by this factor
constexpr int64_t kMostThreads = 256, kMostPrefetch = 1024;  // that a configuration takes

// What takes the place of a setting that a plan does without.
std::string InPlaceOf(const std::string& key) {
  if (key == "encoder") return "inline";
  if (key == "context") return "1";
  return "null";
}

// The keys in which a plan differs from the one that a configuration pins, as lines for it. What is
// computed again is left to the planner: a word for each layer is much to paste.
std::string SettingOf(const Plan& plan, const PlannedConfig& from) {
  const std::vector<PlanSetting> settings = PlanSettings(plan), before = PlanSettings(from.plan);
  std::string parallel;
  bool recomputes_otherwise = false;
  const auto add = [&](const std::string& key, const std::string& value) {
    parallel += fmt::format("{}{}: {}", parallel.empty() ? "" : ", ", key, value);
  };
  for (const PlanSetting& setting : settings) {
    if (std::find(before.begin(), before.end(), setting) != before.end()) continue;
    if (setting.key == "recompute_layers") {
      recomputes_otherwise = true;
    } else {
      add(setting.key, setting.value);
    }
  }
  for (const PlanSetting& other : before) {
    const bool stays = std::any_of(settings.begin(), settings.end(),
                                   [&](const PlanSetting& own) { return own.key == other.key; });
    if (!stays) add(other.key, InPlaceOf(other.key));
  }
  // No part of a plan, and refused for an encoder that is not in the bubbles.
  const ParallelSection& given = from.config.parallel;
  for (const auto& [key, is_set] :
       {std::pair("prefetch", given.prefetch), std::pair("encoder_stream", given.encoder_stream),
        std::pair("encoder_static", given.encoder_static)}) {
    if (is_set && !FillsBubbles(plan.encoder)) add(key, "false");
  }
  std::string text = parallel.empty() ? "" : fmt::format("parallel: {{{}}}", parallel);
  if (recomputes_otherwise) {
    text += text.empty() ? "" : "\n";
    text += "balance: {recompute: bar, recompute_layers: [], recompute_modules: []}";
  }
  return text;
}

void FreeStages(RunConfig& config) {
  config.parallel.stage_layers.clear();
  config.balance.recompute_layers.clear();
  config.balance.recompute_modules.clear();
  config.balance.recompute = RecomputeRule::kAdaptive;
  config.balance.partition = PartitionRule::kBalanced;
}

void FreeSchedule(RunConfig& config) {
  FreeStages(config);
  config.parallel.schedule.reset();
  config.parallel.chunks.reset();
}

PlanTarget TargetOf(const PlannedConfig& planned) {
  return {.ranks = planned.plan.num_ranks(), .islands = planned.islands};
}

double SamplesPerSecond(const PlannedRun& run, double step_s) {
  return run.samples_per_pack * static_cast<double>(run.workload.global_batch()) / step_s;
}

}  // namespace

RemedySearch::RemedySearch(const PlannedConfig& planned)
    : planned_(planned),
      costs_(GatherSampleCosts(planned.config, planned.model)),
      workload_(PlanWorkload(costs_, planned.config, planned.model)),
      request_(
          PlanRequestOf(planned.config, planned.model, workload_.workload, TargetOf(planned))) {
  step_s_ = ScorePlan(request_, planned_.plan).step_s;
}

std::vector<RemedySearch::Choice> RemedySearch::Choices(const PlannedConfig& planned) {
  const std::vector<IdleCause> pipeline = {IdleCause::kWarmUp, IdleCause::kCoolDown,
                                           IdleCause::kPipelineOther};
  std::vector<IdleCause> layout = pipeline, all = pipeline;
  layout.push_back(IdleCause::kUnevenStages);
  all.insert(all.end(), {IdleCause::kUnevenStages, IdleCause::kUnevenData, IdleCause::kTensor,
                         IdleCause::kContext, IdleCause::kReduceScatter, IdleCause::kAllGather});
  std::vector<Choice> choices = {{"recomputation where it is needed",
                                  {},
                                  [](RunConfig& config) {
                                    config.balance.recompute_layers.clear();
                                    config.balance.recompute_modules.clear();
                                    config.balance.recompute = RecomputeRule::kAdaptive;
                                  }},
                                 {"another mesh", all, [](RunConfig& config) {
                                    FreeSchedule(config);
                                    config.parallel.data.reset();
                                    config.parallel.pipeline.reset();
                                    config.parallel.tensor.reset();
                                    config.parallel.sequence.reset();
                                    config.parallel.zero_ranks.reset();
                                    config.parallel.encoder_ranks.reset();
                                    config.parallel.encoder_chunks.reset();
                                    config.parallel.encoder_tensor.reset();
                                  }}};
  if (planned.plan.pipeline() > 1) {
    choices.push_back({"stages cut by time", {IdleCause::kUnevenStages}, FreeStages});
    choices.push_back({"another schedule", pipeline, FreeSchedule});
    const ImageSpec images = ImageSpecOf(planned.model);
    if (images.takes_pictures()) {
      choices.push_back({"another place of the encoder", layout, [](RunConfig& config) {
                           FreeSchedule(config);
                           config.parallel.encoder = "auto";
                           config.parallel.encoder_ranks.reset();
                           config.parallel.encoder_chunks.reset();
                           config.parallel.encoder_tensor.reset();
                         }});
    }
  }
  if (planned.plan.data() > 1) {
    choices.push_back(
        {"ZeRO", {IdleCause::kReduceScatter, IdleCause::kAllGather}, [](RunConfig& config) {
           config.parallel.zero.reset();
           config.parallel.zero_ranks.reset();
         }});
  }
  return choices;
}

Remedy RemedySearch::Try(const Choice& choice) const {
  RunConfig config = planned_.config;
  choice.free(config);
  const PlanRequest request =
      PlanRequestOf(config, planned_.model, workload_.workload, TargetOf(planned_));
  const PlanSearchResult found = SearchPlans(request);
  if (found.plans.empty()) return {choice.name, 0, false, "", "", {}};
  const ScoredPlan& best = found.plans.front();
  // All other plans give the same training.
  const bool trains_otherwise =
      DelaysUpdates(planned_.plan.schedule) && !DelaysUpdates(best.plan.schedule);
  return {choice.name,
          1 - best.step_s / step_s_,
          false,
          SettingOf(best.plan, planned_),
          trains_otherwise ? "updates are not delayed then, and what is learnt is another" : "",
          choice.against};
}

// Packs that are alike, with this plan.
Remedy RemedySearch::TryPacks() const {
  Remedy remedy{"even packs", 0, false, "balance: {group: isf+}", "", {IdleCause::kUnevenData}};
  RunConfig config = planned_.config;
  if (config.balance.group == GroupMethod::kIsfPlus) return remedy;
  config.balance.group = GroupMethod::kIsfPlus;
  config.balance.pad = false;
  if (planned_.config.balance.pad) remedy.setting = "balance: {group: isf+, pad: false}";
  const PlannedRun run = PlanWorkload(costs_, config, planned_.model);
  PlanRequest request = request_;
  request.workload = run.workload;
  const ScoredPlan scored = ScorePlan(request, planned_.plan);
  if (scored.peak_bytes() > request.cluster.memory_bytes) return remedy;
  remedy.gain = 1 - SamplesPerSecond(workload_, step_s_) / SamplesPerSecond(run, scored.step_s);
  return remedy;
}

std::vector<Remedy> RemedySearch::Search() const {
  std::vector<Remedy> found;
  const auto keep = [&](Remedy remedy) {
    if (remedy.gain < kLeastGain || remedy.setting.empty()) return;
    // A wider choice that finds no better plan says nothing new.
    const bool known = std::any_of(found.begin(), found.end(), [&](const Remedy& other) {
      return other.setting == remedy.setting;
    });
    if (!known) found.push_back(std::move(remedy));
  };
  for (const Choice& choice : Choices(planned_)) keep(Try(choice));
  keep(TryPacks());
  return found;
}

namespace {

// Whether ranks computed on GPUs: their metrics have what the device's allocator keeps.
bool OnGpus(const Subject& subject) {
  return subject.planned->config.train.device == "cuda" ||
         std::any_of(subject.metrics.begin(), subject.metrics.end(),
                     [](const StepMetrics& step) { return step.mem_reserved_bytes.has_value(); });
}

// More of what was used. How many threads a rank of a GPU loads with where that is left to it, no
// file of a run says: a number could be less.
Remedy MoreLoaders(const Subject& subject, double gain) {
  Remedy remedy{"more loader threads", gain, true, "", "", {IdleCause::kDataWait}};
  if (!subject.planned) {
    remedy.advice = "more data.threads, and a larger data.prefetch";
    return remedy;
  }
  const DataConfig& data = subject.planned->config.data;
  const int64_t prefetch = std::min(kMore * data.prefetch, kMostPrefetch);
  if (data.threads == 0 && OnGpus(subject)) {
    remedy.setting = fmt::format("data: {{prefetch: {}}}", prefetch);
    remedy.advice =
        "and more data.threads than a rank on a GPU takes by itself: its threads but one, 16 at "
        "most";
  } else {
    remedy.setting = fmt::format("data: {{threads: {}, prefetch: {}}}",
                                 std::min(kMore * data.LoaderThreads(1), kMostThreads), prefetch);
  }
  return remedy;
}

}  // namespace

std::vector<Remedy> RemediesOfMeasured(const Subject& subject, const IdleTable& table) {
  std::vector<Remedy> remedies;
  const auto share = [&](IdleCause cause) { return table.Total(cause) / table.step_s; };
  const auto add = [&](Remedy remedy) {
    if (remedy.gain >= kLeastGain) remedies.push_back(std::move(remedy));
  };
  const RunConfig config = subject.planned ? subject.planned->config : RunConfig();
  add(MoreLoaders(subject, share(IdleCause::kDataWait)));
  const double pause = share(IdleCause::kCheckpoint) * (kMore - 1) / kMore;
  add({"fewer checkpoints",
       pause,
       false,
       config.checkpoint.epochs > 0
           ? fmt::format("checkpoint: {{epochs: {}}}", kMore * config.checkpoint.epochs)
           : fmt::format("checkpoint: {{every: {}}}", kMore * config.checkpoint.every),
       "",
       {IdleCause::kCheckpoint}});
  add({"fewer outer steps",
       share(IdleCause::kOuterStep) * (kMore - 1) / kMore,
       false,
       fmt::format("train: {{diloco: {{every: {}}}}}", kMore * config.train.diloco.every),
       "islands drift apart for longer then",
       {IdleCause::kOuterStep}});
  if (table.slowest >= 0) {
    add({fmt::format("as fast a machine for rank {}", table.slowest),
         share(IdleCause::kSlowRank),
         true,
         "",
         "look for other work on it, or a slower or throttled device",
         {IdleCause::kSlowRank}});
  }
  if (subject.planned && config.cluster.profile.empty() && config.cluster.preset == kLocalPreset) {
    add({"stages cut by measured layers",
         share(IdleCause::kUnevenStages),
         true,
         "cluster: {profile: profile.json}",
         "after `equipoise profile CONFIG --out profile.json`; stage_layers left out",
         {IdleCause::kUnevenStages}});
  }
  return remedies;
}

}  // namespace equipoise
