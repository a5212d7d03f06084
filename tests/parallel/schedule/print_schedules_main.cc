// Writes the pictures and the table of docs/parallelism.md, which parallelism_doc_test compares.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/pipedream_2bw.h"
#include "parallel/schedule/schedule_text.h"

namespace equipoise {
namespace {

StageGraph Chain(int ranks, int chunks, Placement placement = Placement::kLoop) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < ranks * chunks; ++stage)
    rank_of_stage.push_back(RankOfPlace(placement, stage, ranks));
  return ChainGraph(rank_of_stage);
}

void Draw(const std::string& title, const Schedule& schedule) {
  std::printf("%s:\n```\n%s```\n\n", title.c_str(), ToGrid(schedule).c_str());
}

void DrawAll() {
  Draw("`naive`, 4 ranks, 2 micro-batches", BuildNaive(Chain(4, 1), 2));
  Draw("`gpipe`, 4 ranks, 4 micro-batches", BuildGPipe(Chain(4, 1), 4));
  Draw("`1f1b`, 4 ranks, 4 micro-batches", Build1F1B(Chain(4, 1), 4));
  Draw("`zb_h1`, 4 ranks, 4 micro-batches (F, I and W as long as each other)",
       BuildZbH1(Chain(4, 1), 4));
  Draw("`interleaved`, 2 ranks with 2 chunks each, 4 micro-batches (a column is half as long here)",
       BuildInterleaved(Chain(2, 2), 4));
  Draw(
      "`zb_v`, 2 ranks with 2 chunks each, 4 micro-batches (likewise; F, I and W as long as each "
      "other)",
      BuildZbV(Chain(2, 2, Placement::kV), 4));
  Draw(
      "`pipedream_2bw`, 4 ranks, 4 micro-batches; a step in the middle of a run, from 4 on the "
      "next "
      "step's",
      BuildPipeDream2Bw(Chain(4, 1), 4, /*begun=*/true, /*goes_on=*/true));
  StageGraph encoder = Chain(3, 1);
  encoder.stages[0].encoder = true;
  Draw("`1f1b`, an encoder on rank 0 before a model of 2 ranks, 4 micro-batches",
       Build1F1B(encoder, 4));
  encoder.stages[0].needs_weight_gradient = encoder.stages[1].needs_input_gradient = false;
  Draw("the same with a frozen encoder", DropIdleOps(Build1F1B(encoder, 4), {}));
  StageGraph chunks = ChainGraph({0, 1, 2, 1, 2});
  chunks.stages[0].encoder = true;
  Draw("`interleaved`, an encoder on rank 0 before 2 ranks with 2 chunks each, 4 micro-batches",
       BuildInterleaved(chunks, 4));
  std::printf(
      "A schedule as text, with its transfers and reductions (`1f1b`, 2 ranks, 3 "
      "micro-batches):\n```\n%s```\n\n",
      ToText(CompleteSchedule(Build1F1B(Chain(2, 1), 3), {}, {})).c_str());
}

// The model stays the same: with more chunks a stage is shorter and keeps less.
Simulation SimulateOf(const std::string& name, int chunks, int micro_batches) {
  SimulationCosts costs;
  costs.seconds = [chunks](const Op& op) {
    if (!IsCompute(op.kind)) return 0.0;
    const bool whole = op.kind == OpKind::kBackward;
    return (whole ? 2.0 : 1.0) / chunks;
  };
  costs.kept_bytes = [chunks](int, int) { return 1.0 / chunks; };
  const StageGraph graph = Chain(4, chunks, FindSchedule(name)->placement);
  // Of delayed updates a step in the middle of a run.
  const Schedule built = DelaysUpdates(name) ? BuildPipeDream2Bw(graph, micro_batches, true, true)
                                             : BuildSchedule(name, graph, micro_batches);
  return Simulate(CompleteSchedule(built, {}, costs), costs);
}

void PrintTable() {
  std::printf(
      "| schedule | step, M = 8 | bubble, M = 8 | bubble, M = 32 | kept by rank, M = 8 | most "
      "kept, M = 32 |\n|---|---|---|---|---|---|\n");
  const std::vector<std::pair<std::string, int>> rows = {
      {"naive", 1},       {"gpipe", 1},       {"1f1b", 1}, {"zb_h1", 1},
      {"interleaved", 2}, {"interleaved", 4}, {"zb_v", 2}, {"pipedream_2bw", 1}};
  for (const auto& [name, chunks] : rows) {
    const Simulation few = SimulateOf(name, chunks, 8), many = SimulateOf(name, chunks, 32);
    std::string kept;
    for (const double bytes : few.peak_kept_bytes) {
      char text[32];
      std::snprintf(text, sizeof(text), "%s%.4g", kept.empty() ? "" : ", ", bytes);
      kept += text;
    }
    const auto& most = many.peak_kept_bytes;
    std::printf("| `%s`%s | %.4g | %.1f %% | %.1f %% | %s | %.4g |\n", name.c_str(),
                chunks == 1 ? "" : (", " + std::to_string(chunks) + " chunks").c_str(), few.step_s,
                100 * few.bubble_share[0], 100 * many.bubble_share[0], kept.c_str(),
                *std::max_element(most.begin(), most.end()));
  }
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  if (argc != 2 || (std::string(argv[1]) != "pictures" && std::string(argv[1]) != "table")) {
    std::fprintf(stderr, "usage: print_schedules pictures|table\n");
    return 2;
  }
  std::string(argv[1]) == "pictures" ? equipoise::DrawAll() : equipoise::PrintTable();
  return 0;
}
