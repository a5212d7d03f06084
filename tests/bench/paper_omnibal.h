#pragma once

#include <string>
#include <vector>

#include "balance/costs/cluster.h"
#include "balance/groups/group_plan.h"
#include "balance/load/sample_groups.h"
#include "balance/search/plan_request.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"

namespace equipoise::testing {

// The setting of OmniBal's main table (arXiv 2407.20761): InternVL-Chat-1.5's recipe on 1.27 M
// samples of InternVL-1.2M, 64 A100-80G, one epoch. What the paper does not tell is chosen here:
// - 1,024 samples a step (the recipe's global batch): 256 micro-batches of 4, or packs of (9 tiles,
//   4,096 tokens), which hold 4.4 on average;
// - pipeline 8 x data 8 x tensor 1 for the Megatron rows: InternViT-6B's 25 heads are divided by no
//   tensor degree of a node, and 8 data ranks are those of the published balance test.
inline constexpr int kPaperDevices = 64;

// What of the setting is fitted.
struct PaperConstants {
  double kernels = 1;  // factor on the preset's kernel efficiencies
  double links = 1;    // factor on the preset's bandwidths
  // Share of what the slowest of the 64 ranks needs more than the mean in a layer that all wait for
  // under ZeRO-3; the rest is hidden by gathers that run ahead.
  double waiting = 1;
};

Cluster PaperCluster(const PaperConstants& constants);
// This program, but layers or halves of them are computed again as wholes, as in the paper.
const Program& PaperProgram();

// Micro-batches of whole steps, drawn from an epoch: micro-batch m of data rank r is m * data + r.
struct PaperBatches {
  std::vector<std::vector<LayerLoad>> steps;
  double samples_a_step = 0;  // mean over the epoch
};

// Every sample of a histogram file (configs/histograms), its tiles as the model takes them.
std::vector<SampleSize> ReadHistogram(const std::string& path, const ModelConfig& model);

// `random`: 4 samples, padded to the longest. isf, isf+: packs.
PaperBatches MakeBatches(const std::vector<SampleSize>& sizes, GroupMethod method,
                         const ModelConfig& model, int steps);

// The epoch in GPU days at these seconds a step.
double GpuDays(double step_s, double samples, const PaperBatches& batches);

// Mean seconds of a step, the slowest data rank's.
double PipelineStepSeconds(const ModelConfig& model, const Cluster& cluster, const Plan& plan,
                           const PaperBatches& batches);
// Data parallelism over all devices, parameters gathered layer by layer (ZeRO-3), everything
// computed again in backward: ranks meet in every layer.
double Zero3StepSeconds(const ModelConfig& model, const PaperConstants& constants,
                        const PaperBatches& batches);

// What a row of the paper runs.
struct PaperRow {
  PartitionRule partition = PartitionRule::kBalanced;
  RecomputeRule recompute = RecomputeRule::kAdaptive;
  bool free = false;  // mesh, chunks, schedule and ZeRO are searched
};
Plan PaperPlan(const ModelConfig& model, const Cluster& cluster, const PaperRow& row,
               const PaperBatches& batches);

}  // namespace equipoise::testing
