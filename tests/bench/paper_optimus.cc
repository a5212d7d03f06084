#include "tests/bench/paper_optimus.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "balance/costs/collective_time.h"
#include "balance/costs/cost_model.h"
#include "balance/load/partition.h"
#include "parallel/plan.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/simulate.h"

namespace equipoise::testing {
namespace {

constexpr double kGradientBytes = 4, kWeightBytes = 2;

// Consecutive layers as ops see them.
struct StageSum {
  double forward_s = 0, backward_s = 0, parameters = 0, output_bytes = 0;
};

StageSum SumOf(const std::vector<PaperLayer>& layers, int begin, int end) {
  StageSum sum;
  for (int i = begin; i < end; ++i) {
    const PaperLayer& layer = layers[static_cast<size_t>(i)];
    sum.forward_s += layer.forward_s;
    sum.backward_s += layer.backward_s;
    sum.parameters += layer.parameters;
    sum.output_bytes = layer.output_bytes;
  }
  return sum;
}

Plan PlanOf(const PaperJob& job) {
  return InlinePlan({.data = job.data, .pipeline = job.pipeline, .tensor = job.tensor}, job.chunks);
}

// `copies`: data ranks over which a stage's gradients are summed, by stage.
SimulationCosts CostsOfStages(const PaperJob& job, const Cluster& cluster,
                              std::vector<StageSum> stages, const std::vector<int>& copies) {
  const Plan plan = PlanOf(job);
  std::vector<double> reduce_s;
  double gather_s = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const LinkModel link = DataLink(cluster, plan);
    const double parameters = stages[stage].parameters;
    reduce_s.push_back(ReduceScatterSeconds(kGradientBytes * parameters, copies[stage], link));
    // Of the updated weights, those of the first stage are gathered beside nothing.
    if (copies[stage] == job.data) {
      gather_s = std::max(gather_s, AllGatherSeconds(kWeightBytes * parameters, job.data, link));
    }
  }
  SimulationCosts costs;
  const double slowest = StragglerFactor(cluster, job.gpus());
  costs.seconds = [=](const Op& op) {
    const StageSum& stage = stages[static_cast<size_t>(op.stage)];
    if (op.kind == OpKind::kReduce) return reduce_s[static_cast<size_t>(op.stage)];
    if (op.kind == OpKind::kOptimizer) return gather_s;
    return slowest * (IsForward(op.kind) ? stage.forward_s : stage.backward_s);
  };
  costs.bytes = [stages](const Op& op) {
    return stages[static_cast<size_t>(std::min(op.stage, op.peer))].output_bytes;
  };
  costs.link = [=](int from, int to) { return PipelineLink(cluster, plan, from, to); };
  return costs;
}

StageGraph LoopGraph(const PaperJob& job) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < job.pipeline * job.chunks; ++stage) {
    rank_of_stage.push_back(stage % job.pipeline);
  }
  return ChainGraph(rank_of_stage);
}

PaperStep StepOf(const PaperJob& job, const PaperCosts& costs, double step_s) {
  PaperStep step;
  step.step_s = step_s;
  step.mfu = costs.flops / step_s / (job.gpus() * costs.cluster.peak_flops);
  return step;
}

std::vector<StageSum> StagesOf(const std::vector<PaperLayer>& layers,
                               const std::vector<int>& begins) {
  std::vector<StageSum> stages;
  for (size_t s = 0; s + 1 < begins.size(); ++s) {
    stages.push_back(SumOf(layers, begins[s], begins[s + 1]));
  }
  return stages;
}

std::vector<PaperLayer> LayersOf(const PaperCosts& costs, bool encoder) {
  std::vector<PaperLayer> layers;
  for (const PaperLayer& layer : costs.layers) {
    if (layer.encoder == encoder) layers.push_back(layer);
  }
  return layers;
}

// The language model's layers over all stages: equal numbers of blocks, the embedding in the first
// stage and the head in the last, as Megatron-LM has them.
std::vector<int> EvenTextCut(const PaperJob& job) {
  const int stages = job.pipeline * job.chunks;
  const auto blocks = static_cast<int>(job.text.num_hidden_layers);
  std::vector<int> begins;
  for (int s = 0; s <= stages; ++s) begins.push_back(s * blocks / stages + (s > 0 ? 1 : 0));
  ++begins.back();
  return begins;
}

struct FilledStep {
  double step_s = 0, share_in_bubbles = 0;
};

// The encoder's work between the first and the last op of the language model.
FilledStep Measure(const Schedule& filled, const SimulationCosts& costs) {
  const Simulation run = SimulateTimes(filled, costs);
  double first = run.step_s, last = 0, inside = 0, all = 0;
  const auto each = [&](const auto& visit) {
    for (size_t r = 0; r < filled.ranks.size(); ++r) {
      for (size_t p = 0; p < filled.ranks[r].size(); ++p) {
        const Op& op = filled.ranks[r][p];
        if (!IsCompute(op.kind)) continue;
        const bool encoder = filled.graph.stages[static_cast<size_t>(op.stage)].encoder;
        visit(encoder, run.start_s[r][p], run.end_s[r][p]);
      }
    }
  };
  each([&](bool encoder, double start, double end) {
    if (encoder) return;
    first = std::min(first, start);
    last = std::max(last, end);
  });
  each([&](bool encoder, double start, double end) {
    if (!encoder) return;
    all += end - start;
    inside += std::max(0.0, std::min(end, last) - std::max(start, first));
  });
  return {run.step_s, all > 0 ? inside / all : 0};
}

// Stages of a filled schedule: all encoder pipelines alike, each in equal parts.
SimulationCosts FilledCosts(const PaperJob& job, const PaperCosts& costs,
                            const EncoderPipelines& encoder) {
  const std::vector<PaperLayer> layers = LayersOf(costs, /*encoder=*/true);
  StageSum part = SumOf(layers, 0, static_cast<int>(layers.size()));
  const double parts = encoder.depth();
  part.forward_s /= parts;
  part.backward_s /= parts;
  part.parameters /= parts;
  const int pipelines = encoder.count(job.pipeline);
  std::vector<StageSum> stages(static_cast<size_t>(pipelines * encoder.depth()), part);
  std::vector<int> copies(stages.size(), job.data * pipelines);
  for (const StageSum& stage : StagesOf(LayersOf(costs, /*encoder=*/false), EvenTextCut(job))) {
    stages.push_back(stage);
    copies.push_back(job.data);
  }
  return CostsOfStages(job, costs.cluster, std::move(stages), copies);
}

}  // namespace

VisionConfig PaperEncoder(int64_t hidden) {
  VisionConfig vision;
  vision.hidden_size = hidden;
  vision.intermediate_size = 4 * hidden;
  vision.num_hidden_layers = 48;
  vision.num_attention_heads = hidden / 128;
  vision.attention_bias = true;
  return vision;
}

// GPT's MLP of width 4 h stands as gate, up and down of 8 h / 3: the same FLOPs and parameters.
TextConfig PaperText(int64_t hidden, int64_t layers, int64_t vocabulary) {
  TextConfig text;
  text.model_type = "llama";
  text.hidden_size = hidden;
  text.intermediate_size = 8 * hidden / 3;
  text.num_hidden_layers = layers;
  text.num_attention_heads = text.num_key_value_heads = hidden / 128;
  text.head_dim = 128;
  text.vocab_size = vocabulary;
  return text;
}

LayerLoad LoadOf(const PaperJob& job) {
  LayerLoad load;
  const int64_t samples = PaperJob::kMicroBatch;
  load.patches = load.image_tokens = samples * job.image_tokens;
  const auto rows = static_cast<double>(job.image_tokens);
  load.patch_pairs = static_cast<double>(samples) * rows * rows;
  load.tokens = load.targets = samples * PaperJob::kTokens;
  load.token_pairs = static_cast<double>(samples) * CausalPairs(PaperJob::kTokens);
  return load;
}

ModelConfig ModelOf(const PaperJob& job, const VisionConfig& encoder) {
  ModelConfig model;
  model.model_type = "internvl";
  model.has_vision = true;
  model.vision = encoder;
  model.text = job.text;
  model.downsample_ratio = 1;
  return model;
}

RunStyle PaperStyle() {
  RunStyle style;
  style.program = &PublishedSystems();
  style.sequence_parallel = true;
  style.overlaps_transfers = true;
  style.overlaps_gather = false;  // at the start of a step, a bubble in the paper
  return style;
}

Cluster ClusterOf(const PaperJob& job) {
  ClusterConfig section;
  section.preset = "h100-80g";
  section.nodes = job.gpus() / 8;
  return MakeCluster(section);
}

PaperCosts CostsOfJob(const PaperJob& job) {
  PaperCosts costs;
  costs.cluster = ClusterOf(job);
  CostModel::Options options;
  options.tensor = job.tensor;
  options.style = PaperStyle();
  const LayerLoad load = LoadOf(job);
  for (size_t e = 0; e < job.encoders.size(); ++e) {
    const CostModel model(ModelOf(job, job.encoders[e]), costs.cluster, options);
    const bool last = e + 1 == job.encoders.size();
    for (int i = 0; i < model.num_layers(); ++i) {
      const LayerSpec& spec = model.specs()[static_cast<size_t>(i)];
      const bool encoder = spec.component != Component::kLanguageModel;
      if (!encoder && !last) continue;  // one language model behind all encoders
      const LayerTimes times = model.Times(i, load);
      const auto bytes = static_cast<double>(model.BoundaryBytes(i, load));
      costs.layers.push_back({encoder, times.forward_s, times.backward_s(),
                              static_cast<double>(model.Parameters(i)), bytes});
      const int passes = 1 + (model.HasBackward(i) ? 1 : 0) + (model.Trainable(i) ? 1 : 0);
      costs.flops += passes * spec.ForwardFlops(load);
    }
  }
  costs.flops *= static_cast<double>(job.batch) / PaperJob::kMicroBatch;
  return costs;
}

PaperStep ChainStep(const PaperJob& job, const PaperCosts& costs, const std::vector<int>& begins) {
  const std::vector<StageSum> stages = StagesOf(costs.layers, begins);
  const SimulationCosts seconds =
      CostsOfStages(job, costs.cluster, stages, std::vector<int>(stages.size(), job.data));
  const Schedule schedule =
      AddReductions(BuildSchedule("interleaved", LoopGraph(job), job.micro_batches()));
  return StepOf(job, costs, SimulateTimes(schedule, seconds).step_s);
}

std::vector<int> FirstStageCut(const PaperJob& job, const PaperCosts& costs) {
  const auto encoder = static_cast<int>(LayersOf(costs, /*encoder=*/true).size());
  std::vector<int> begins = EvenTextCut(job);
  for (size_t s = 1; s < begins.size(); ++s) begins[s] += encoder;
  return begins;
}

std::vector<int> ParameterCut(const PaperJob& job, const PaperCosts& costs) {
  std::vector<double> parameters;
  for (const PaperLayer& layer : costs.layers) parameters.push_back(layer.parameters);
  return EvenStages(parameters, job.pipeline * job.chunks);
}

std::vector<int> BalancedCut(const PaperJob& job, const PaperCosts& costs) {
  std::vector<double> seconds;
  for (const PaperLayer& layer : costs.layers) {
    seconds.push_back(layer.forward_s + layer.backward_s);
  }
  return EvenStages(seconds, job.pipeline * job.chunks);
}

PaperStep OptimusStep(const PaperJob& job, const PaperCosts& costs, EncoderPlacement placement) {
  const Schedule text = BuildSchedule("interleaved", LoopGraph(job), job.micro_batches());
  PaperStep best;
  double search_s = 0;
  for (const int ranks : {1, 2, 4, 8}) {
    if (job.pipeline % ranks != 0) continue;
    const EncoderPipelines encoder{.ranks = ranks, .pieces = 24 / ranks};
    const SimulationCosts seconds = FilledCosts(job, costs, encoder);
    const std::clock_t start = std::clock();
    const Schedule filled = FillBubbles(text, encoder, seconds, placement);
    search_s += static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const FilledStep measured = Measure(filled, seconds);
    if (best.step_s > 0 && measured.step_s >= best.step_s) continue;
    best = StepOf(job, costs, measured.step_s);
    best.share_in_bubbles = measured.share_in_bubbles;
    best.encoder = encoder;
  }
  best.search_s = search_s;
  return best;
}

double WorkSeconds(const PaperJob& job, const PaperCosts& costs) {
  double seconds = 0;
  for (const PaperLayer& layer : costs.layers) seconds += layer.forward_s + layer.backward_s;
  const double slowest = StragglerFactor(costs.cluster, job.gpus());
  return slowest * seconds * job.micro_batches() / job.pipeline;
}

PaperStep TextStep(const PaperJob& job, const PaperCosts& costs) {
  const std::vector<StageSum> stages = StagesOf(LayersOf(costs, false), EvenTextCut(job));
  const SimulationCosts seconds =
      CostsOfStages(job, costs.cluster, stages, std::vector<int>(stages.size(), job.data));
  const Schedule schedule =
      AddReductions(BuildSchedule("interleaved", LoopGraph(job), job.micro_batches()));
  return StepOf(job, costs, SimulateTimes(schedule, seconds).step_s);
}

}  // namespace equipoise::testing
