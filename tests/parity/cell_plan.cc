#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "balance/costs/stage_costs.h"
#include "balance/load/partition.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "models/families/resolve_unfreeze.h"
#include "models/spec/layer_spec.h"
#include "parallel/schedule/builders.h"
#include "tests/models/load_of.h"
#include "tests/models/model_support.h"
#include "tests/parity/cell.h"

// What a cell is: its name, model and plan.

namespace equipoise::testing {
namespace {

std::vector<Recompute> CellRecompute(const Cell& cell, const ModelConfig& config) {
  std::vector<Recompute> recompute;
  const bool random = cell.recompute.rfind("random", 0) == 0;
  std::mt19937 dice(random ? static_cast<unsigned>(std::stoul(cell.recompute.substr(6))) : 0);
  for (const LayerSpec& layer : LayerSpecs(config)) {
    const bool named = cell.recompute.find(ComponentName(layer.component)) != std::string::npos;
    if (random) {
      recompute.push_back(static_cast<Recompute>(dice() % kRecomputeKinds));
    } else if (ParseEnum<Recompute>(cell.recompute) && cell.recompute != "none") {
      recompute.push_back(ParseEnum<Recompute>(cell.recompute).value());
    } else {
      recompute.push_back(named ? Recompute::kFull : Recompute::kNone);
    }
  }
  return recompute;
}

// Those of an encoder in the bubbles: a step ahead only what is frozen can run.
int EncoderLayers(const Cell& cell, const std::vector<LayerSpec>& specs) {
  const int all = NumEncoderLayers(specs);
  int frozen = 0;
  while (frozen < all && !IsTrained(specs[static_cast<size_t>(frozen)], cell.freeze)) ++frozen;
  return cell.prefetch ? frozen : all;
}

}  // namespace

Plan CellPlan(const Cell& cell, const ModelConfig& config) {
  const ScheduleKind& kind = *FindSchedule(cell.schedule);
  const Degrees degrees{cell.data, cell.pipeline, cell.tensor, cell.context};
  const int chunks = cell.chunks > 0 ? cell.chunks : kind.fewest_chunks;
  const std::vector<LayerSpec> specs = LayerSpecs(config);
  Plan plan = InlinePlan(degrees, chunks, kind.placement);
  if (cell.encoder == EncoderPlacement::kDisaggregated) {
    plan = DisaggregatedPlan(degrees, cell.encoder_ranks, NumEncoderLayers(specs), chunks,
                             kind.placement);
  } else if (FillsBubbles(cell.encoder)) {
    plan = PlanInBubbles(degrees,
                         {cell.encoder, cell.encoder_ranks, cell.encoder_chunks,
                          EncoderLayers(cell, specs), cell.encoder_tensor},
                         chunks, kind.placement);
  }
  plan.schedule = cell.schedule;
  plan.sharded = ShardedStateOf(cell.zero);
  plan.zero_ranks = cell.zero_ranks;
  plan.offloaded = cell.offloaded;
  plan.sequence = cell.sequence;
  plan.stage_begins = cell.stage_begins;
  plan.recompute = CellRecompute(cell, config);
  if (plan.stage_begins.empty()) {
    plan.stage_begins = EvenStages(LayerCosts(config, cell.freeze, LoadOf(config, 2, 24)),
                                   CutSpans(plan, static_cast<int>(specs.size())));
  }
  return plan;
}

Cell InOneProcess(Cell cell) {
  cell.data = cell.pipeline = cell.tensor = cell.context = 1;
  cell.encoder = EncoderPlacement::kInline;
  cell.encoder_ranks = cell.encoder_chunks = 1;
  cell.encoder_tensor = cell.zero = cell.zero_ranks = 0;
  cell.offloaded = ShardedState::kNone;
  cell.sequence = cell.prefetch = cell.encoder_stream = false;
  if (!DelaysUpdates(cell.schedule)) cell.schedule = "gpipe";
  cell.chunks = 0;
  cell.stage_begins.clear();
  cell.recompute = "none";
  return cell;
}

Cell WithoutPipeline(Cell cell) {
  const Cell spread = cell;
  cell = InOneProcess(cell);
  cell.data = spread.data, cell.tensor = spread.tensor, cell.context = spread.context;
  cell.sequence = spread.sequence;
  return cell;
}

std::string ToString(const Cell& cell) {
  std::string text = cell.model + " " + cell.modality + " data " + std::to_string(cell.data) +
                     " pipeline " + std::to_string(cell.pipeline) + " tensor " +
                     std::to_string(cell.tensor) + " " + cell.schedule;
  if (cell.chunks > 0) text += " x " + std::to_string(cell.chunks);
  if (cell.zero > 0) text += " ZeRO-" + std::to_string(cell.zero);
  if (cell.zero_ranks > 0) text += fmt::format(" on {}", cell.zero_ranks);
  if (cell.sequence) text += " sequence";
  if (cell.context > 1) text += fmt::format(" context {}", cell.context);
  if (cell.encoder != EncoderPlacement::kInline) {
    text += fmt::format(" encoder {} on {}", ToString(cell.encoder), cell.encoder_ranks);
    if (cell.encoder_chunks > 1) text += fmt::format(" x {}", cell.encoder_chunks);
    if (cell.encoder_tensor > 0) text += fmt::format(" tensor {}", cell.encoder_tensor);
  }
  for (size_t s = 0; s + 1 < cell.stage_begins.size(); ++s) {
    text += (s == 0 ? " layers " : "+") +
            std::to_string(cell.stage_begins[s + 1] - cell.stage_begins[s]);
  }
  text += " M " + std::to_string(cell.micro_batches) + " " + cell.precision;
  if (cell.fp8) text += " fp8";
  for (const std::string& module : cell.freeze) text += " frozen " + module;
  for (const std::string& part : cell.unfreeze) text += " but " + part;
  if (cell.recompute != "none") text += " recompute " + cell.recompute;
  if (cell.offloaded != ShardedState::kNone)
    text += fmt::format(" offloaded {}", ZeroStage(cell.offloaded));
  if (cell.turning) text += " turning";
  if (cell.prefetch) text += " prefetch";
  if (cell.encoder_stream) text += " stream";
  return text;
}

ModelConfig CellModel(const std::string& name) {
  if (const size_t plus = name.find('+'); plus != std::string::npos) {
    const std::string kind = name.substr(plus + 1);
    ModelConfig config = CellModel(name.substr(0, plus));
    config.lora.targets = {"all-linear"};
    config.lora.rank = 4;
    config.lora.alpha = 8;
    config.lora.dora = kind == "dora";
    config.lora.dropout = kind == "dropout" ? 0.25 : 0;
    if (kind == "vocabulary") config.lora.train = {"embed_tokens"};
    if (kind == "int8") config.quantize = {Packing::kInt8, {"vision", "llm"}};
    return config;
  }
  if (name == "internvl-qwen2") return TinyInternVl(/*large_form=*/false);
  if (name == "internvl-llama") return TinyInternVl(/*large_form=*/true);
  if (name == "internvl-drop_path") {
    ModelConfig config = TinyInternVl(/*large_form=*/false);
    config.vision.drop_path_rate = 0.5;
    return config;
  }
  if (name == "llava-llama") return TinyLlava();
  if (name == "llava_next-llama") return TinyLlavaNext();
  if (name == "llava_onevision-qwen2") return TinyLlavaOnevision();
  if (name == "qwen2_vl") return TinyQwenVl(/*windows=*/false);
  if (name == "qwen2_5_vl") return TinyQwenVl(/*windows=*/true);
  if (name == "qwen3_vl") return TinyQwen3Vl();
  if (name.starts_with("internvl-")) {  // another decoder behind InternViT-300M's form
    ModelConfig config = TinyInternVl(/*large_form=*/false);
    config.text = TinyText(name.substr(name.find('-') + 1), /*tied=*/false).text;
    return config;
  }
  ModelConfig config = TinyText(name.substr(0, name.find('-')), name == "qwen2-tied");
  if (name == "llama-longrope") {  // sequences of some cells are longer than its short ones
    config.text.rope_type = "longrope";
    config.text.rope_original_max_position_embeddings = 16;
    config.text.rope_short_factor = {1, 1, 1, 1};
    config.text.rope_long_factor = {3, 4, 6, 8};
  }
  return config;
}

// Components that the cell freezes have no adapters.
ModelConfig ModelOf(const Cell& cell) {
  ModelConfig config = CellModel(cell.model);
  config.lora.without = cell.freeze;
  ResolveUnfreeze(cell.unfreeze, cell.freeze, &config);
  return config;
}

std::vector<int> StagesWithPicturesFirst(const std::string& model, int stages) {
  const ModelConfig config = CellModel(model);
  const int layers = static_cast<int>(LayerSpecs(config).size());
  std::vector<int> begins = {0};
  for (int s = 1; s < stages; ++s)
    begins.push_back(LayersWithPictures(config) + (s - 1) * (layers > 6 ? 1 : 0));
  begins.push_back(layers);
  return begins;
}

}  // namespace equipoise::testing
