#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "balance/search/plan_search.h"
#include "configs/base/error.h"
#include "models/families/presets.h"
#include "tests/models/load_of.h"

namespace equipoise::testing {

// Packs of up to 9 tiles and 4096 tokens.
inline PlanRequest Request(const std::string& model, int nodes, int global_batch) {
  PlanRequest request;
  request.model = PresetConfig(model);
  ClusterConfig cluster;
  cluster.preset = "a100-80g";
  cluster.nodes = nodes;
  request.cluster = MakeCluster(cluster);
  request.ranks = request.cluster.num_devices();
  std::vector<LayerLoad> packs;
  for (int i = 0; i < global_batch; ++i) {
    packs.push_back(LoadOf(request.model, 9 - i % 3 / 2, 2600 + i * 397 % 1497));
  }
  request.workload.steps = {packs};
  request.workload.worst = LoadOf(request.model, 9, 4096);
  return request;
}

// A plan's stages share out so many layers.
inline void CheckStages(const Plan& plan, int layers) {
  REQUIRE(static_cast<int>(plan.stage_begins.size()) == plan.num_stages() + 1);
  CHECK(plan.stage_begins.front() == 0);
  CHECK(plan.stage_begins.back() == layers);
  CHECK(std::is_sorted(plan.stage_begins.begin(), plan.stage_begins.end()));
  CHECK(std::set(plan.stage_begins.begin(), plan.stage_begins.end()).size() ==
        plan.stage_begins.size());
  CHECK(static_cast<int>(plan.recompute.size()) == layers);
}

// What the search refuses a request with, whose exit code is to be `code`; empty: nothing.
inline std::string ErrorOf(const PlanRequest& request, ExitCode code) {
  try {
    BestPlan(request, SearchPlans(request));
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace equipoise::testing
