#pragma once

#include <functional>
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
  bool rebuild = false;           // whether the cost index is built even if a valid one is cached
  bool enforce_bad_share = true;  // whether more bad records than data.max_bad_share are an error
  std::string flag = {};          // of `data CONFIG check` for these sources, such as " --eval"
};

// A list of sources that is opened for planning and loading, as `train`, `data` and the evaluation
// on held-out data need it. The members point to each other, so it cannot be moved.
struct OpenedData {
  // Collective over `world`: each rank builds a part of the cost index if none is cached. Progress
  // and warnings are logged. Throws ConfigError and DataError.
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

// Throws ConfigError where encoder and projector alone are trained and no record has a picture or a
// video: every gradient would be 0.
void RequirePicturesToTrain(const RunConfig& config, const OpenedData& data);

// Adds the records that the index excludes to the quarantine, each with its reason, for which it
// reads them again. For rank 0; `alive`: as of AgreeOnItems().
void QuarantineDefects(const OpenedData& data, Quarantine& quarantine,
                       const std::function<void()>& alive);

}  // namespace equipoise
