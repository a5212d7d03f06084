// The rows of Optimus' tables through cost model, bubble filler and simulator. Started by
// scripts/bench/paper_optimus, which prints the tables; here a JSON object a line.

#include <cstdio>
#include <exception>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "tests/bench/paper_optimus.h"
#include "tests/bench/paper_optimus_plans.h"

namespace equipoise::testing {
namespace {

// Published steps in seconds (Optimus, USENIX ATC 25, table 5).
struct StrongRow {
  int data;
  double megatron_s, balanced_s, optimus_s;
};
constexpr StrongRow kStrong[] = {
    {24, 10.65, 10.43, 9.80}, {32, 8.26, 8.06, 7.29}, {48, 5.91, 5.87, 4.87}};

constexpr int64_t kVocabulary = 51200;  // not published: Megatron-LM's padded GPT-2 vocabulary

PaperJob Strong(int data, int64_t image_tokens) {
  return {.name = std::to_string(data * 64) + " GPUs",
          .encoders = {PaperEncoder(6144)},
          .text = PaperText(12288, 96, kVocabulary),
          .data = data,
          .image_tokens = image_tokens};
}

// Image tokens of a sample at which Megatron-LM on 1,536 GPUs takes what is published.
int64_t FitImageTokens() {
  int64_t low = 1, high = 65536;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    const PaperJob job = Strong(kStrong[0].data, middle);
    const PaperCosts costs = CostsOfJob(job);
    const double step_s = ChainStep(job, costs, ParameterCut(job, costs)).step_s;
    (step_s < kStrong[0].megatron_s ? low : high) = middle;
  }
  return low;
}

void Print(const Json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

Json ValueOf(const PaperStep& step) { return {{"step_s", step.step_s}, {"mfu", step.mfu}}; }

Json FilledOf(const PaperJob& job, const PaperCosts& costs, EncoderPlacement placement) {
  const PaperStep step = OptimusStep(job, costs, placement);
  Json value = ValueOf(step);
  value["share"] = step.share_in_bubbles;
  value["search_s"] = step.search_s;
  value["encoder_ranks"] = step.encoder.ranks;
  return value;
}

void PrintJob(const PaperJob& job, const Json& published) {
  const PaperCosts costs = CostsOfJob(job);
  Json line = {{"job", job.name},
               {"gpus", job.gpus()},
               {"micro_batches", job.micro_batches()},
               {"published", published},
               {"work_s", WorkSeconds(job, costs)},
               {"text", ValueOf(TextStep(job, costs))},
               {"first_stage", ValueOf(ChainStep(job, costs, FirstStageCut(job, costs)))},
               {"megatron", ValueOf(ChainStep(job, costs, ParameterCut(job, costs)))},
               {"balanced", ValueOf(ChainStep(job, costs, BalancedCut(job, costs)))}};
  line["three_phase"] = FilledOf(job, costs, EncoderPlacement::kThreePhase);
  line["dep"] = FilledOf(job, costs, EncoderPlacement::kDep);
  line["coarse"] = FilledOf(job, costs, EncoderPlacement::kOptimusCoarse);
  line["fine"] = FilledOf(job, costs, EncoderPlacement::kOptimus);
  Print(line);
}

// Weak scaling (table 3) and two encoders (table 6): only ratios to Megatron-LM are published.
void PrintOthers(int64_t image_tokens) {
  const VisionConfig v5 = PaperEncoder(3072), v11 = PaperEncoder(4096), v22 = PaperEncoder(6144);
  const TextConfig llama = PaperText(8192, 80, kVocabulary);
  const TextConfig gpt = PaperText(12288, 96, kVocabulary);
  const std::vector<PaperJob> jobs = {
      {"A 11B + 70B", {v11}, llama, 2, 4, 8, 6, 32, image_tokens},
      {"B 22B + 70B", {v22}, llama, 4, 4, 8, 6, 64, image_tokens},
      {"C 11B + 175B", {v11}, gpt, 4, 8, 8, 12, 128, image_tokens},
      {"D 22B + 175B", {v22}, gpt, 8, 8, 8, 12, 256, image_tokens},
      {"11B + 5B + 175B", {v11, v5}, gpt, 8, 8, 8, 12, 256, image_tokens},
      {"22B + 5B + 175B", {v22, v5}, gpt, 8, 8, 8, 12, 256, image_tokens},
      {"22B + 11B + 175B", {v22, v11}, gpt, 8, 8, 8, 12, 256, image_tokens}};
  const Json at_most = {{"at_most", 1.22}};
  const std::vector<Json> published = {
      at_most, at_most, at_most, at_most, {{"ratio", 1.25}}, {{"ratio", 1.26}}, {{"ratio", 1.27}}};
  for (size_t i = 0; i < jobs.size(); ++i) PrintJob(jobs[i], published[i]);
}

// What the planner makes of a job within the memory of its GPUs.
void PrintPlans(const PaperJob& job) {
  const auto value = [](const PaperPlan& plan) {
    return Json{{"mesh", plan.mesh},
                {"step_s", plan.step_s},
                {"gib", plan.gib},
                {"recomputed", plan.recomputed},
                {"layers", plan.layers}};
  };
  Print({{"planned", job.name},
         {"gpus", job.gpus()},
         {"balanced", value(BalancedPlan(job))},
         {"optimus", value(OptimusPlan(job))},
         {"joint", value(JointPlan(job))}});
}

// How much the bubbles of the largest job hold of a smaller encoder load.
void PrintLoads() {
  for (const int64_t image_tokens : {128, 256, 512, 1024, 2048}) {
    const PaperJob job = Strong(kStrong[0].data, image_tokens);
    const PaperCosts costs = CostsOfJob(job);
    Print({{"tokens", image_tokens},
           {"text", ValueOf(TextStep(job, costs))},
           {"three_phase", FilledOf(job, costs, EncoderPlacement::kThreePhase)},
           {"coarse", FilledOf(job, costs, EncoderPlacement::kOptimusCoarse)},
           {"fine", FilledOf(job, costs, EncoderPlacement::kOptimus)}});
  }
}

void Run() {
  const int64_t image_tokens = FitImageTokens();
  Print({{"image_tokens", image_tokens}});
  for (const StrongRow& row : kStrong) {
    PrintJob(
        Strong(row.data, image_tokens),
        {{"megatron", row.megatron_s}, {"balanced", row.balanced_s}, {"optimus", row.optimus_s}});
  }
  for (const StrongRow& row : kStrong) PrintPlans(Strong(row.data, image_tokens));
  PrintOthers(image_tokens);
  PrintLoads();
}

}  // namespace
}  // namespace equipoise::testing

int main() {
  try {
    equipoise::testing::Run();
  } catch (const equipoise::UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
