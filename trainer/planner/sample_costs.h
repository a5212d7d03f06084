#pragma once

#include <cstdint>
#include <string>

#include "balance/load/sample_groups.h"
#include "data/index/cost_index.h"
#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Patches and tokens of training samples, as far as known without reading all records. Those of a
// cost index are read from its file on access.
struct SampleCosts {
  SampleList list;
  int64_t usable = 0;  // samples of the list that can be used
  std::string source;  // "cost index data/.equipoise/costs-0123.idx"
  double weight = 1;   // samples of an epoch that each usable sample represents

  // Samples of an epoch; an estimate if only some were read.
  int64_t epoch_samples() const;
};

// Finds the sizes of the samples in the first available of:
// 1. the cached cost index;
// 2. data.costs: a JSONL file with {"vit_num": 3, "token_num": 850} per line, a .json file with a
//    histogram, or the name of a histogram of the program (configs/histograms);
// 3. about 2,000 records evenly spaced over data.train, tokenized as for training, each source
//    weighted by its share of an epoch.
// No picture is decoded, and only the stamp of the annotations' content is written. Throws
// ConfigError and DataError.
SampleCosts GatherSampleCosts(const RunConfig& config, const ModelConfig& model);

// Costs of the first epoch's samples, with data.train's `repeat` applied. `index` must outlive
// them.
SampleCosts CostsOfIndex(const CostIndex& index, const RunConfig& config);

}  // namespace equipoise
