#pragma once

#include <string>

#include "tests/bench/paper_optimus.h"

namespace equipoise::testing {

// A plan of the planner for a job (balance/search), within the memory of a GPU: recomputation,
// optimizer's step and sums are counted, as OptimusStep() does not.
struct PaperPlan {
  std::string mesh;    // as `equipoise plan` names it
  double step_s = 0;   // 0: none fits
  double gib = 0;      // of the fullest rank
  int recomputed = 0;  // layers, of
  int layers = 0;
};

// The paper's: its mesh, chunks and schedule, the encoder in the bubbles with its tensor ranks.
PaperPlan OptimusPlan(const PaperJob& job);
// The same with the encoder inline, stages by time.
PaperPlan BalancedPlan(const PaperJob& job);
// The best of all meshes, schedules, chunks, the paper's too, and places of the encoder.
PaperPlan JointPlan(const PaperJob& job);

}  // namespace equipoise::testing
