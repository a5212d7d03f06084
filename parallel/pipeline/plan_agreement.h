#pragma once

#include <functional>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/schedule/plan_hash.h"
#include "parallel/schedule/schedule.h"

namespace equipoise {

// What a rank has worked out for a step.
struct PlannedStep {
  uint64_t hash = 0;  // of what all ranks share: the packs of every data rank
  std::function<std::vector<PlanItem>()> items;  // behind that hash; asked for where hashes differ
  const Schedule* schedule = nullptr;            // shared by the ranks of one data rank
  int data_rank = 0;
};

// Compares the plans of all ranks before a step, 16 bytes each. Collective. Throws ConfigError, the
// same on every rank, that names two ranks and the first item in which they differ.
void RequireSamePlan(const PlannedStep& mine, Communicator& world);

}  // namespace equipoise
