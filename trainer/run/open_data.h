#pragma once

#include <string>
#include <vector>

#include "data/index/cost_index_open.h"
#include "data/loading/loader.h"
#include "data/records/quarantine.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer.h"
#include "models/spec/model_config.h"
#include "parallel/comm/communicator.h"
#include "trainer/settings/data_options.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

struct OpenDataOptions {
  bool rebuild = false;           // the cost index, even where the cached one fits
  bool enforce_bad_share = true;  // throw when more than data.max_bad_share is bad
};

// A list of sources, ready to be planned and loaded: what `train`, `data` and held-out losses
// share. The parts point to each other, so it stays where it is made.
struct OpenedData {
  // Collective over `world`: each rank builds a part of the cost index where none is cached.
  // Progress and notices go to the log. Throws ConfigError and DataError.
  OpenedData(const RunConfig& config, const std::vector<SourceConfig>& sources, Communicator& world,
             const OpenDataOptions& options = {});
  OpenedData(const OpenedData&) = delete;
  OpenedData& operator=(const OpenedData&) = delete;

  ModelConfig model_config;
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  OpenedCostIndex opened;
  const CostIndex& index;
  Dataset dataset;
};

// Puts the records that the index leaves out into the quarantine, each with its reason. For rank 0.
void QuarantineDefects(const OpenedData& data, Quarantine& quarantine);

}  // namespace equipoise
