#include "trainer/planner/make_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "balance/load/partition.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/schedule_text.h"
#include "trainer/settings/delayed_updates.h"

namespace equipoise {
namespace {

// The content of a schedule's file. Throws ConfigError when there is no such file, in which case
// the setting is no schedule's name either.
std::string ReadScheduleFile(const std::string& schedule) {
  if (!std::filesystem::is_regular_file(schedule)) {
    throw ConfigError(fmt::format("parallel.schedule: '{}' is neither a schedule nor a file; {}",
                                  schedule, SuggestSchedule(schedule)));
  }
  std::ifstream file(schedule);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    throw ConfigError(fmt::format(
        "{}: cannot be read, or is empty; give another file, or a schedule's name", schedule));
  }
  return text.str();
}

// How a file's schedule assigns stages to the ranks of the plan. Other faults of the file are
// reported when the schedule is built.
Placement PlacementInFile(const Plan& plan) {
  if (plan.chunks() == 1) return Placement::kLoop;
  const StageGraph graph = ParseSchedule(plan.schedule_text, plan.schedule).graph;
  Plan folded = plan;
  folded.components.back().placement = Placement::kV;
  if (graph.num_stages() != plan.num_stages()) return Placement::kLoop;
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    if (graph.stages[static_cast<size_t>(stage)].rank != folded.RankOfStage(stage))
      return Placement::kLoop;
  }
  return Placement::kV;
}

Plan PlanOnMesh(const RunConfig& config, const ModelConfig& model, int ranks) {
  const ParallelSection& parallel = config.parallel;
  const EncoderPins encoder = EncoderPinsOf(config, model);
  const int encoder_ranks = encoder.ranks.value_or(1);
  const EncoderPlacement placement = encoder.placement.value_or(EncoderPlacement::kInline);
  const bool apart = placement == EncoderPlacement::kDisaggregated;
  Degrees degrees;
  degrees.pipeline = static_cast<int>(parallel.pipeline.value_or(apart ? 1 + encoder_ranks : 1));
  degrees.tensor = static_cast<int>(parallel.tensor.value_or(1));
  degrees.context = static_cast<int>(parallel.context.value_or(1));
  const int model_ranks = degrees.pipeline * degrees.context * degrees.tensor;
  degrees.data = static_cast<int>(parallel.data.value_or(std::max(1, ranks / model_ranks)));
  const Mesh mesh = MeshOf(degrees);
  if (mesh.size() != ranks) {
    const bool shared = degrees.context > 1;
    throw ConfigError(fmt::format(
        "parallel.data x parallel.pipeline x {}parallel.tensor: {} x {} x {}{} needs {} rank{}, "
        "and {} {} started; use mpirun -n {} or change the degrees",
        shared ? "parallel.context x " : "", degrees.data, degrees.pipeline,
        shared ? fmt::format("{} x ", degrees.context) : "", degrees.tensor, mesh.size(),
        mesh.size() == 1 ? "" : "s", ranks, ranks == 1 ? "was" : "were", mesh.size()));
  }
  const int layers =
      placement == EncoderPlacement::kInline ? 0 : encoder.layers.value_or(NumEncoderLayers(model));
  if (apart) return DisaggregatedPlan(degrees, encoder_ranks, layers);
  if (!FillsBubbles(placement)) return InlinePlan(degrees);
  if (degrees.pipeline % encoder_ranks != 0) {
    throw ConfigError(
        fmt::format("parallel.encoder_ranks: copies of {} ranks do not divide {} pipeline ranks; "
                    "use a divisor of {}",
                    encoder_ranks, degrees.pipeline, degrees.pipeline));
  }
  const int encoder_tensor = encoder.tensor.value_or(degrees.tensor);
  if (degrees.tensor % encoder_tensor != 0) {
    throw ConfigError(fmt::format(
        "parallel.encoder_tensor: {} tensor ranks of a copy of the encoder do not divide the {} of "
        "the language model; use a divisor of {}",
        encoder_tensor, degrees.tensor, degrees.tensor));
  }
  return PlanInBubbles(
      degrees, {placement, encoder_ranks, encoder.chunks.value_or(1), layers, encoder_tensor});
}

// Pins the frozen layers in front to the copies of an encoder that runs a step ahead. A projector
// that is trained is no part of them: it needs weights of its step, and is the first layer of the
// language model's first stage. Throws ConfigError where the encoder cannot run ahead.
void PinPrefetch(const RunConfig& config, const ModelConfig& model, EncoderPins& pins) {
  const std::string key = "parallel.prefetch: ";
  if (!model.has_vision) throw ConfigError(key + "there is no image encoder; leave it out");
  if (pins.placement && !FillsBubbles(*pins.placement)) {
    throw ConfigError(fmt::format(
        "{}an encoder that is {} runs in no bubbles; set parallel.encoder to three_phase, dep, "
        "optimus_coarse, optimus or auto, or leave parallel.prefetch out",
        key, config.parallel.encoder));
  }
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  int layers = 0;
  while (layers < NumEncoderLayers(specs) &&
         !IsTrained(specs[static_cast<size_t>(layers)], config.model.freeze))
    ++layers;
  pins.layers = layers;
  pins.prefetch = true;
  if (specs[static_cast<size_t>(layers)].component != Component::kEncoder) return;
  throw ConfigError(key +
                    "vision is trained, or has adapters, and its features change in every step; "
                    "freeze all of it (model.freeze), or leave parallel.prefetch out");
}

// Throws ConfigError where given stages of an encoder in the bubbles do not hold its layers.
void RequireCutAtComponents(const Plan& plan) {
  if (!FillsBubbles(plan.encoder)) return;
  const auto stages = static_cast<size_t>(plan.components.front().num_stages());
  const int layers = plan.components.back().first_layer;
  if (plan.stage_begins[stages] == layers) return;
  throw ConfigError(fmt::format(
      "parallel.stage_layers: {} layers in the {} stages of a copy of the encoder, vision and "
      "projector have {}; make the first {} add up to that",
      plan.stage_begins[stages], stages, layers, stages));
}

// Sets chunks and placement of the language model's stages as the schedule requires.
void AssignStages(const ParallelSection& parallel, Plan& plan) {
  PlanComponent& text = plan.components.back();
  if (FindSchedule(plan.schedule) == nullptr) {
    if (FillsBubbles(plan.encoder)) {
      throw ConfigError(fmt::format(
          "parallel.encoder: {} lays the encoder into a schedule of its own making; name "
          "a schedule in parallel.schedule, or leave it out",
          ToString(plan.encoder)));
    }
    plan.schedule_text = ReadScheduleFile(plan.schedule);
    text.chunks = static_cast<int>(parallel.chunks.value_or(1));
    text.placement = PlacementInFile(plan);
    return;
  }
  const ScheduleKind& kind = *FindSchedule(plan.schedule);
  text.chunks = static_cast<int>(parallel.chunks.value_or(kind.fewest_chunks));
  text.placement = kind.placement;
  if (text.chunks >= kind.fewest_chunks && text.chunks <= kind.most_chunks) return;
  const char* problem = "needs 2 or more stages a rank";
  if (kind.most_chunks == kind.fewest_chunks) {
    problem = "has 2 stages a rank; leave parallel.chunks out";
  }
  if (!kind.chunked()) problem = "has one stage a rank; use parallel.schedule: interleaved";
  throw ConfigError(fmt::format("parallel.chunks: {} {}", plan.schedule, problem));
}

}  // namespace

EncoderPins EncoderPinsOf(const RunConfig& config, const ModelConfig& model) {
  const ParallelSection& parallel = config.parallel;
  EncoderPins pins;
  pins.placement = ParseEnum<EncoderPlacement>(parallel.encoder);  // absent: auto
  if (parallel.prefetch) PinPrefetch(config, model, pins);
  if (pins.placement && FillsBubbles(*pins.placement) && parallel.zero.value_or(1) > 1) {
    throw ConfigError(
        fmt::format("parallel.zero: {} and encoder: {} do not go together: data ranks make passes "
                    "together then, and each has its own order in the bubbles; use zero: 1",
                    *parallel.zero, parallel.encoder));
  }
  if (pins.placement && FillsBubbles(*pins.placement) &&
      OffloadedOf(config.train.offload) >= ShardedState::kGradients) {
    throw ConfigError(fmt::format(
        "train.offload: gradients in host memory and encoder: {} do not go together: copies of the "
        "encoder sum theirs on the GPUs; use train.offload: [optimizer], or encoder: inline",
        parallel.encoder));
  }
  for (const auto& [key, given] : {std::pair("encoder_stream", parallel.encoder_stream),
                                   std::pair("encoder_static", parallel.encoder_static)}) {
    if (!given || !pins.placement || FillsBubbles(*pins.placement)) continue;
    throw ConfigError(fmt::format(
        "parallel.{0}: an encoder that is {1} is not in the bubbles; set parallel.encoder to "
        "three_phase, dep, optimus_coarse, optimus or auto, or leave parallel.{0} out",
        key, parallel.encoder));
  }
  if (!pins.placement && !model.has_vision) pins.placement = EncoderPlacement::kInline;
  if (pins.placement == EncoderPlacement::kInline) {
    if (!parallel.encoder_ranks && !parallel.encoder_chunks && !parallel.encoder_tensor)
      return pins;
    throw ConfigError(fmt::format(
        "parallel.encoder_{}: the encoder's layers are shared by all pipeline ranks (inline); "
        "leave it out, or set parallel.encoder to another placement",
        parallel.encoder_ranks    ? "ranks"
        : parallel.encoder_chunks ? "chunks"
                                  : "tensor"));
  }
  const std::string key = fmt::format("parallel.encoder: {} ", parallel.encoder);
  if (!model.has_vision) throw ConfigError(key + "needs an image encoder; use inline");
  if (parallel.encoder_ranks) pins.ranks = static_cast<int>(*parallel.encoder_ranks);
  if (parallel.encoder_chunks) pins.chunks = static_cast<int>(*parallel.encoder_chunks);
  if (parallel.encoder_tensor) pins.tensor = static_cast<int>(*parallel.encoder_tensor);
  const int ranks = pins.ranks.value_or(1);
  const int layers = pins.layers.value_or(NumEncoderLayers(model));
  const int stages = ranks * pins.chunks.value_or(1);
  if (stages > layers) {
    throw ConfigError(fmt::format(
        "parallel.encoder_ranks: {} stages for the {} layers of vision and projector; use fewer",
        stages, layers));
  }
  if (pins.placement != EncoderPlacement::kDisaggregated) return pins;
  if (pins.chunks) {
    throw ConfigError(
        "parallel.encoder_chunks: a disaggregated encoder has one stage a rank; "
        "leave it out");
  }
  if (pins.tensor) {
    throw ConfigError(
        "parallel.encoder_tensor: a disaggregated encoder has the tensor ranks of the language "
        "model; leave it out");
  }
  if (parallel.pipeline && *parallel.pipeline <= ranks) {
    throw ConfigError(fmt::format(
        "{}leaves the language model no pipeline rank; set parallel.pipeline to {} or more", key,
        ranks + 1));
  }
  int64_t given = 0;
  for (size_t s = 0; s < parallel.stage_layers.size() && s < static_cast<size_t>(ranks); ++s) {
    given += parallel.stage_layers[s];
  }
  if (!parallel.stage_layers.empty() && given != layers) {
    throw ConfigError(fmt::format(
        "parallel.stage_layers: {} layers on the ranks of the disaggregated encoder, vision and "
        "projector have {}; make the first {} add up to that",
        given, layers, ranks));
  }
  return pins;
}

std::vector<int> StageBegins(const std::vector<int64_t>& stage_layers, int num_layers) {
  const std::string key = "parallel.stage_layers: ";
  std::vector<int> begins = {0};
  for (const int64_t count : stage_layers) {
    if (count < 1) throw ConfigError(key + "a stage without layers; give 1 or more each");
    begins.push_back(begins.back() + static_cast<int>(count));
  }
  if (begins.back() != num_layers) {
    throw ConfigError(fmt::format("{}{} layers in all, the model has {}; make them add up", key,
                                  begins.back(), num_layers));
  }
  return begins;
}

void RequireContext(const RunConfig& config, const ModelConfig& model) {
  const ParallelSection& parallel = config.parallel;
  const int64_t context = parallel.context.value_or(1);
  if (context == 1) return;
  const std::string key = "parallel.context: ";
  if (!model.has_vision) return;
  if (parallel.encoder != "inline") {
    throw ConfigError(fmt::format(
        "{}context ranks share out the pictures in the stage that has the token embedding, and the "
        "encoder is to be {}; set parallel.encoder to inline",
        key, parallel.encoder));
  }
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  const int layers = NumEncoderLayers(specs), with_pictures = LayersWithPictures(model);
  const bool first_has_all =
      !parallel.stage_layers.empty() && parallel.stage_layers.front() >= with_pictures;
  // One pipeline rank has several stages where its schedule asks for them.
  const ScheduleKind* kind = FindSchedule(parallel.schedule.value_or("1f1b"));
  const bool one_stage = parallel.pipeline.value_or(1) == 1 && parallel.chunks.value_or(1) == 1 &&
                         kind != nullptr && !kind->chunked();
  if (!one_stage && !first_has_all) {
    throw ConfigError(fmt::format(
        "{}context ranks share out the pictures in the stage that has the token embedding{}; set "
        "parallel.pipeline to 1, with one stage, or parallel.stage_layers with {} or more layers "
        "in the first stage",
        key, model.text.deepstack_layers > 0 ? ", and all layers to which features are added" : "",
        with_pictures));
  }
  // Masks are drawn by the place of a row among all rows of the pictures.
  const bool adapted = std::any_of(specs.begin(), specs.begin() + layers,
                                   [](const LayerSpec& spec) { return spec.adapter_dropout > 0; });
  const bool trained =
      std::any_of(specs.begin(), specs.begin() + layers, [&config](const LayerSpec& spec) {
        return spec.component == Component::kEncoder && IsTrained(spec, config.model.freeze);
      });
  if (!adapted && (model.vision.drop_path_rate == 0 || !trained)) return;
  throw ConfigError(fmt::format(
      "{}the encoder draws at random, which context ranks cannot do alike; set {} to 0, or leave "
      "parallel.context out",
      key, adapted ? "model.adapter.dropout" : "model.drop_path"));
}

std::optional<int> ZeroRanks(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  if (!parallel.zero_ranks) return std::nullopt;
  if (*parallel.zero_ranks == 1 || parallel.zero.value_or(1) == 0) {
    throw ConfigError(
        fmt::format("parallel.zero_ranks: {} shares out nothing; {}",
                    parallel.zero == 0 ? "zero: 0" : "one rank",
                    "leave it out, or set parallel.zero to 1, 2 or 3 and this to 2 or more"));
  }
  return static_cast<int>(*parallel.zero_ranks);
}

Plan MakePlan(const RunConfig& config, const ModelConfig& model, int ranks) {
  const ParallelSection& parallel = config.parallel;
  Plan plan = PlanOnMesh(config, model, ranks);
  plan.schedule = parallel.schedule.value_or("1f1b");
  plan.sharded = ZeroFor(config.train.offload, parallel.zero).value_or(ShardedState::kOptimizer);
  plan.offloaded = OffloadedOf(config.train.offload);
  plan.zero_ranks = ZeroRanks(config).value_or(0);
  if (plan.zero_ranks > 0 && plan.same_weights() % plan.zero_ranks != 0) {
    throw ConfigError(
        fmt::format("parallel.zero_ranks: {} ranks do not divide the {} with the same weights "
                    "(parallel.data x parallel.context); use a divisor of {}",
                    plan.zero_ranks, plan.same_weights(), plan.same_weights()));
  }
  if (plan.zero_ranks == plan.same_weights()) plan.zero_ranks = 0;
  plan.sequence = parallel.sequence.value_or(false);
  if (plan.sequence && plan.tensor() == 1) {
    throw ConfigError(
        "parallel.sequence: tensor ranks share out the tokens, and there is one; set "
        "parallel.tensor to 2 or more, or leave parallel.sequence out");
  }
  RequireContext(config, model);
  RequireDelayedUpdates(config);
  AssignStages(parallel, plan);
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  const int num_layers = static_cast<int>(specs.size());
  if (!parallel.stage_layers.empty()) {
    const auto given = static_cast<int>(parallel.stage_layers.size());
    int stages = 0;  // of one copy of each component
    for (const CutSpan& span : CutSpans(plan, num_layers)) stages += span.stages;
    if (given != stages) {
      throw ConfigError(fmt::format(
          "parallel.stage_layers: {} stages given, the plan has {}; give one number a stage", given,
          stages));
    }
    plan.stage_begins = StageBegins(parallel.stage_layers, num_layers);
    RequireCutAtComponents(plan);
  } else {
    const int64_t tokens = config.data.max_tokens;
    const ImageSpec images = ImageSpecOf(model);
    const int64_t tiles = images.takes_pictures() ? tokens / images.tokens_per_tile : 0;
    const LayerLoad full = SingleSegment(images.LoadOfTiles(tiles), tokens);
    plan.stage_begins =
        EvenStages(LayerCosts(model, config.model.freeze, full), CutSpans(plan, num_layers));
  }
  plan.recompute = GivenRecompute(config, model);
  if (plan.recompute.empty()) plan.recompute.assign(specs.size(), Recompute::kNone);
  return plan;
}

std::vector<Recompute> GivenRecompute(const RunConfig& config, const ModelConfig& model) {
  const BalanceSection& balance = config.balance;
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  const std::vector<Recompute>& by_layer = balance.recompute_layers;
  if (!by_layer.empty() && by_layer.size() != specs.size()) {
    throw ConfigError(fmt::format(
        "balance.recompute_layers: {} words given, the model has {} layers; give one word a layer",
        by_layer.size(), specs.size()));
  }
  const std::vector<std::string>& modules = balance.recompute_modules;
  CheckModules(model, modules, "balance.recompute_modules");
  const bool adaptive = balance.recompute == RecomputeRule::kAdaptive;
  const bool none = balance.recompute == RecomputeRule::kNone;
  if (!modules.empty() && (adaptive || none || !by_layer.empty())) {
    throw ConfigError(
        fmt::format("balance.recompute_modules: says where balance.recompute is done, which is {}",
                    !by_layer.empty() ? "given layer by layer; take one of the two out"
                    : adaptive ? "chosen for each layer (bar); set it to full, attention or mlp"
                               : "none; set it to full, attention or mlp"));
  }
  if (!by_layer.empty()) return by_layer;
  if (adaptive) return {};
  std::vector<Recompute> recompute;
  for (const LayerSpec& spec : specs) {
    const bool named = modules.empty() || IsAmong(spec, modules);
    recompute.push_back(named ? UniformRecompute(balance.recompute) : Recompute::kNone);
  }
  return recompute;
}

int64_t Accumulation(const RunConfig& config, const Plan& plan) {
  const int64_t ranks = plan.data() * config.train.diloco.islands;
  if (config.train.global_batch % ranks != 0) {
    throw ConfigError(fmt::format(
        "train.global_batch: {} packs cannot be dealt to {} data ranks; use a multiple of {}",
        config.train.global_batch, ranks, ranks));
  }
  return config.train.global_batch / ranks;
}

std::string DescribePlan(const Plan& plan) {
  std::string text = DescribeAxes(plan);
  if (plan.pipeline() > 1) {
    text += fmt::format(", {}, layers {}", plan.schedule, fmt::join(plan.stage_layers(), " + "));
  } else if (DelaysUpdates(plan.schedule)) {
    text += ", " + plan.schedule;
  }
  if (plan.sequence) text += ", sequence parallel";
  if (plan.shards() > 1 || plan.IsByLayer(ShardedState::kGradients))
    text += fmt::format(", ZeRO-{}", ZeroStage(plan.sharded));
  if (plan.zero_ranks > 0) text += fmt::format(" on {} ranks each", plan.zero_ranks);
  for (const auto& kind : NamesOf(Recompute())) {
    const auto count = std::count(plan.recompute.begin(), plan.recompute.end(), kind.value);
    if (count > 0 && kind.value != Recompute::kNone)
      text += fmt::format(", recompute {} of {} layers", kind.name, count);
  }
  return text;
}

}  // namespace equipoise
