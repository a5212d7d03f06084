#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/costs/cluster.h"
#include "balance/costs/program.h"
#include "models/spec/model_config.h"
#include "parallel/schedule/encoder_pipelines.h"
#include "parallel/schedule/fill_bubbles.h"

namespace equipoise::testing {

// A row of the paper's tables (Optimus, arXiv 2408.03505): models, GPUs, the language model's plan.
struct PaperJob {
  std::string name;
  std::vector<VisionConfig> encoders;  // one after the other
  TextConfig text;
  int data = 1, pipeline = 8, tensor = 8, chunks = 12;
  int64_t batch = 1536;      // samples of a step
  int64_t image_tokens = 0;  // of a sample: rows of the encoder, one picture; not published

  int gpus() const { return data * pipeline * tensor; }
  int micro_batches() const { return static_cast<int>(batch / data / kMicroBatch); }

  static constexpr int64_t kMicroBatch = 2;  // samples
  static constexpr int64_t kTokens = 2048;   // of a sample in the language model
};

VisionConfig PaperEncoder(int64_t hidden);
TextConfig PaperText(int64_t hidden, int64_t layers, int64_t vocabulary);

// What the cost model takes of a job: its model with one of its encoders, how the published system
// runs it, on which cluster, and a micro-batch.
ModelConfig ModelOf(const PaperJob& job, const VisionConfig& encoder);
RunStyle PaperStyle();
Cluster ClusterOf(const PaperJob& job);
LayerLoad LoadOf(const PaperJob& job);

// One layer, on one rank of a tensor group, for one micro-batch.
struct PaperLayer {
  bool encoder = false;
  double forward_s = 0, backward_s = 0;
  double parameters = 0, output_bytes = 0;
};

// A job's layers on a GPU of the published test bed.
struct PaperCosts {
  Cluster cluster;
  std::vector<PaperLayer> layers;
  double flops = 0;  // of a step, forward and backward, on all GPUs
};
PaperCosts CostsOfJob(const PaperJob& job);

// What a step takes in the simulator.
struct PaperStep {
  double step_s = 0, mfu = 0;
  // Of Optimus: seconds of the encoder inside the language model's step, of all of its seconds; the
  // encoder's pipelines; seconds that the search has taken.
  double share_in_bubbles = 0, search_s = 0;
  EncoderPipelines encoder;
};

// Interleaved 1F1B over all layers as one chain, cut at `begins` (stages + 1).
PaperStep ChainStep(const PaperJob& job, const PaperCosts& costs, const std::vector<int>& begins);
// Equal numbers of the language model's layers, the whole encoder in the first stage.
std::vector<int> FirstStageCut(const PaperJob& job, const PaperCosts& costs);
// Stages with even parameters, which stands for the paper's Megatron-LM: what it cuts by is not
// published, and with the encoder in the first stage its steps cannot be met.
std::vector<int> ParameterCut(const PaperJob& job, const PaperCosts& costs);
// Stages with even seconds, by the dynamic program of the paper's appendix B.
std::vector<int> BalancedCut(const PaperJob& job, const PaperCosts& costs);

// The encoder in the bubbles of the language model; the best PP_enc.
PaperStep OptimusStep(const PaperJob& job, const PaperCosts& costs, EncoderPlacement placement);
// What a step takes where no rank ever waits: all passes, in equal parts.
double WorkSeconds(const PaperJob& job, const PaperCosts& costs);
// The language model alone.
PaperStep TextStep(const PaperJob& job, const PaperCosts& costs);

}  // namespace equipoise::testing
