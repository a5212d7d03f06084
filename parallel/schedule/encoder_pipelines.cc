#include "parallel/schedule/encoder_pipelines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

void CheckPipelines(const StageGraph& llm, const EncoderPipelines& encoder) {
  const int ranks = llm.num_ranks();
  if (encoder.ranks < 1 || ranks % encoder.ranks != 0) {
    throw ConfigError(
        fmt::format("encoder pipelines of {} ranks do not divide the {} pipeline ranks of the "
                    "language model; take a divisor of {}",
                    encoder.ranks, ranks, ranks));
  }
  if (encoder.lanes < 1 || encoder.pieces < 1) {
    throw ConfigError(fmt::format("encoder pipelines with {} lanes and {} pieces; take 1 or more",
                                  encoder.lanes, encoder.pieces));
  }
  for (const auto* table : {&encoder.needs_input_gradient, &encoder.needs_weight_gradient}) {
    if (table->empty() || static_cast<int>(table->size()) == encoder.depth()) continue;
    throw ConfigError(
        fmt::format("gradients are told of {} stages, an encoder pipeline has {}; give one value "
                    "for each",
                    table->size(), encoder.depth()));
  }
  const std::vector<std::vector<int>> previous = llm.PreviousStages();
  for (int stage = 0; stage < llm.num_stages(); ++stage) {
    if (llm.stages[stage].encoder) {
      throw ConfigError(fmt::format(
          "stage {} is an encoder already; fill the schedule of a language model alone", stage));
    }
    if (stage > 0 && previous[stage].empty()) {
      throw ConfigError(fmt::format(
          "stage {} begins a second chain; the encoder feeds one first stage, stage 0", stage));
    }
  }
}

}  // namespace

StageGraph WithEncoderStages(const StageGraph& llm, const EncoderPipelines& encoder) {
  CheckPipelines(llm, encoder);
  StageGraph graph;
  const int pipelines = encoder.count(llm.num_ranks());
  const int first_text = pipelines * encoder.depth();
  for (int pipeline = 0; pipeline < pipelines; ++pipeline) {
    const int first_rank = pipeline / encoder.lanes * encoder.ranks;
    for (int place = 0; place < encoder.depth(); ++place) {
      const bool last = place + 1 == encoder.depth();
      graph.stages.push_back({.rank = first_rank + place / encoder.pieces,
                              .next = {last ? first_text : graph.num_stages() + 1},
                              .encoder = true,
                              .lane = encoder.lanes > 1 ? pipeline % encoder.lanes : -1,
                              .needs_input_gradient = encoder.NeedsInputGradient(place),
                              .needs_weight_gradient = encoder.NeedsWeightGradient(place)});
    }
  }
  for (StageNode node : llm.stages) {
    for (int& next : node.next) next += first_text;
    graph.stages.push_back(std::move(node));
  }
  CheckGraph(graph);
  return graph;
}

Schedule AddEncoderStages(const Schedule& llm, const EncoderPipelines& encoder) {
  if (!encoder.runs.empty() && static_cast<int>(encoder.runs.size()) != llm.micro_batches) {
    throw ConfigError(
        fmt::format("pictures are told of {} micro-batches, the schedule has {}; give one value "
                    "for each",
                    encoder.runs.size(), llm.micro_batches));
  }
  Schedule schedule;
  schedule.graph = WithEncoderStages(llm.graph, encoder);
  schedule.micro_batches = llm.micro_batches;
  const int text_stages = llm.graph.num_stages();
  const int first_text = schedule.graph.num_stages() - text_stages;
  for (const std::vector<Op>& list : llm.ranks) {
    std::vector<Op>& ops = schedule.ranks.emplace_back();
    for (Op op : list) {
      if (!IsCompute(op.kind)) continue;
      op.stage += first_text;
      ops.push_back(op);
    }
  }
  const std::vector<bool> none(llm.micro_batches, false), all(llm.micro_batches, true);
  StepWork& work = schedule.work;
  work.runs.assign(first_text, none);
  work.sends = work.runs;
  for (int stage = 0; stage < text_stages; ++stage) {
    work.runs.push_back(llm.work.runs.empty() ? all : llm.work.runs[stage]);
    work.sends.push_back(llm.work.sends.empty() ? work.runs.back() : llm.work.sends[stage]);
  }
  return schedule;
}

void SetOwners(Schedule& schedule, const EncoderPipelines& encoder,
               const std::vector<int>& owners) {
  StepWork& work = schedule.work;
  const int pipelines = encoder.count(schedule.graph.num_ranks());
  for (int stage = 0; stage < pipelines * encoder.depth(); ++stage) {
    for (int i = 0; i < schedule.micro_batches; ++i) {
      work.runs[stage][i] = work.sends[stage][i] = owners[i] == stage / encoder.depth();
    }
  }
}

std::vector<int> RoundRobinOwners(const EncoderPipelines& encoder, int llm_ranks,
                                  int micro_batches) {
  std::vector<int> owners;
  int running = 0;
  for (int i = 0; i < micro_batches; ++i) {
    owners.push_back(encoder.Runs(i) ? running++ % encoder.count(llm_ranks) : -1);
  }
  return owners;
}

}  // namespace equipoise
