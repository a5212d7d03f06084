#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "balance/search/plan_request.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"
#include "parallel/trace_file.h"
#include "trainer/outputs/metrics.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// A plan with the configuration that it is for: what is needed to simulate it and others.
struct PlannedConfig {
  RunConfig config;  // with the plan pinned: all of `parallel`, what is recomputed, limits of packs
  ModelConfig model;
  Plan plan;
  int islands = 1;  // that each have this plan, and this configuration
};

// What `equipoise doctor` examines. One at least of `trace` and `planned` is there.
struct Subject {
  std::string name;
  bool run = false;  // a run folder
  std::optional<TraceFile> trace;
  std::optional<PlannedConfig> planned;
  std::vector<StepMetrics> metrics;  // of a run; may be empty
};

// Reads a run folder, the JSON of `equipoise plan --json`, or a trace. Throws DataError for
// anything else, and where a part of it is damaged.
Subject ReadSubject(const std::string& path);

}  // namespace equipoise
