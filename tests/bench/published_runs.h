#pragma once

#include <string>
#include <vector>

#include "balance/costs/program.h"
#include "configs/base/json.h"
#include "models/spec/layer_load.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"

namespace equipoise::testing {

// A training step that others have measured and published (published_runs.json), as they ran it.
struct PublishedRun {
  std::string id, table, preset;
  ModelConfig model;
  Plan plan;
  int64_t micro_batch = 1, global_batch = 1, tokens = 1;  // tokens of a sequence
  std::string attention;  // "flash", "flash1", "flash3" (cuDNN's too) or "none"
  RunStyle style;
  double inter_gb_s = 0;  // of a device between nodes; 0: the preset's
  double measured_s = 0;

  // The micro-batches of a data rank in a step; the last has what the others leave.
  std::vector<LayerLoad> Loads() const;
};

// Throws DataError that names the row.
PublishedRun ReadPublishedRun(const Json& row, const std::string& source);

// What our model of costs and memory says of a run.
struct RunForecast {
  double step_s = 0;
  double error_band = 0;  // one standard deviation, as a share of step_s
  double mfu = 0, measured_mfu = 0;
  int64_t peak_bytes = 0, memory_bytes = 0;  // of the fullest rank; of a device
};
RunForecast ForecastRun(const PublishedRun& run);

}  // namespace equipoise::testing
