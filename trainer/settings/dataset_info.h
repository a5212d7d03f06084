#pragma once

#include <string>

#include "configs/base/json.h"
#include "data/settings/data_config.h"

namespace equipoise {

// True for what lies in LLaMA-Factory's dataset_info.json: an object of data sets, of which one
// says where it is ("file_name", "hf_hub_url", ...).
bool IsDatasetInfo(const Json& object);

// The data set `name` of a dataset_info.json as a source: `set` is its entry, `list` the source
// that names the file. Its columns and tags become the source's; what it leaves out is as in
// LLaMA-Factory (src/llamafactory/data/parser.py): an entry without columns is Alpaca's
// instruction, input and output, and columns that are not named are not read. Paths are relative
// to the list's folder, and pictures are so too where `list` names no folder of pictures. A data
// set of the Hub is read where it lies in the cache. Throws DataError for what it does not take:
// one that is not there, or of a script, preference data, text without answers, num_samples.
SourceConfig SourceOfDataset(const Json& set, const std::string& name, const SourceConfig& list);

}  // namespace equipoise
