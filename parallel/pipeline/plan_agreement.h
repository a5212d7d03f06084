#pragma once

#include <functional>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/schedule/plan_hash.h"
#include "parallel/schedule/schedule.h"

namespace equipoise {

// A rank's own derivation of a step, to be compared with the other ranks'.
struct StepFingerprint {
  uint64_t hash = 0;  // of what all ranks have in common: the packs of every data rank
  std::function<std::vector<PlanItem>()> items;  // behind that hash; called where hashes differ
  const Schedule* schedule = nullptr;            // common to the pipeline ranks of one data rank
  int data_rank = 0;
};

// Compares the plans of all ranks before a step; each sends two hashes and its data rank, 24 bytes.
// Collective. Throws ConfigError, the same on every rank, that names two ranks and the first item
// in which they differ.
void RequireSamePlan(const StepFingerprint& mine, Communicator& world);

}  // namespace equipoise
