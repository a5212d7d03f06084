#pragma once

#include <cstdint>
#include <string>

#include "balance/load/sample_groups.h"
#include "data/index/cost_index.h"
#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Patches and tokens of the samples to be trained on, as far as they are known without reading all
// records. Those of a cost index stay in its file.
struct SampleCosts {
  SampleList list;
  int64_t usable = 0;     // of the list
  std::string source;     // "cost index data/.equipoise/costs-0123.idx"
  double stands_for = 1;  // samples of an epoch that each of the usable ones stands for

  // Samples of an epoch; an estimate where some stand for all.
  int64_t epoch_samples() const;
};

// From the cost index where it is in the cache; else from data.costs, a JSONL file with
// {"vit_num": 3, "token_num": 850} a line, a .json file with a histogram, or the name of one of the
// program's histograms (configs/histograms); else from 2,000 records spread over data.train,
// tokenized and measured as training would, each source with the share that it has of an epoch. No
// picture is decoded, nothing is written but the stamp of the annotations' content. Throws
// ConfigError and DataError.
SampleCosts GatherSampleCosts(const RunConfig& config, const ModelConfig& model);

// Costs of the first epoch's samples: data.train's `repeat` is applied. `index` must outlive them.
SampleCosts CostsOfIndex(const CostIndex& index, const RunConfig& config);

}  // namespace equipoise
