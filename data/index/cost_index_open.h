#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/index/cost_index.h"
#include "data/settings/data_config.h"
#include "data/text/chat_template.h"
#include "models/spec/image_spec.h"

namespace equipoise {

struct CostIndexOptions {
  ImageSpec images;  // as the model takes them
  // This rank builds slice `slice` of `slices`. `any_rank(mine)` waits for the ranks of the other
  // slices, and returns whether any rank passed true; absent with one slice. During a long build it
  // is called every few seconds, so that no rank waits longer than that.
  int slice = 0;
  int slices = 1;
  std::function<bool(bool mine)> any_rank;
  // Throws unless all slices pass the same number, with what another one says of a rank; absent
  // with one slice. Called before the build, since parts of other files would not belong together,
  // and with the index that was found, which may lie on a disk of each machine.
  std::function<void(const std::string& otherwise, uint64_t mine)> require_same;
  // Runs `work` on every slice; what it throws on one, all throw. Absent with one slice.
  std::function<void(const std::function<void()>& work)> on_all;
  // Returns the text of slice 0 on every slice; absent with one slice.
  std::function<std::string(const std::string& mine)> of_first;
  // Returns the texts of all slices, in their order, on slice 0, and nothing on the others; absent
  // with one slice.
  std::function<std::vector<std::string>(const std::string& mine)> collect;
  // Called now and then on slice 0 with the share done, from one thread at a time.
  std::function<void(double share)> progress;
  // Called on slice 0 with one line that the user should see.
  std::function<void(const std::string& text)> notice;
  // Cache folder where data.cache is empty and the annotations' folder is read-only, such as
  // RUN/cache.
  std::string fallback_folder;
  bool rebuild = false;           // even where a cached index fits
  bool enforce_bad_share = true;  // throw when more than data.max_bad_share is bad
  std::string flag = {};          // of `data CONFIG check` for these sources, such as " --eval"
};

struct OpenedCostIndex {
  CostIndex index;
  bool built = false;  // by this call; else found in the cache
  double seconds = 0;  // spent on finding or building it
};

// Opens the index of `sources`: cached beside the data under a name that is the hash of content,
// tokenizer, template and pictures' shape (docs/cost_index_format.md), built first where it is
// absent, damaged or stale; a notice names one in an older version of the format. The file is
// bitwise the same for every number of slices and threads. Collective over the slices. Throws
// DataError for missing or empty annotation files, and when too many records are bad: not for those
// of a cached index, which is built again before.
OpenedCostIndex OpenCostIndex(const std::vector<SourceConfig>& sources, const DataConfig& config,
                              const ChatTemplate& chat_template, const CostIndexOptions& options);

// The index that OpenCostIndex() would find in the cache; nullopt where it would build one, with a
// notice of one in an older version. Not collective; writes nothing but the hash of the
// annotations' content.
std::optional<CostIndex> FindCostIndex(const std::vector<SourceConfig>& sources,
                                       const DataConfig& config, const ChatTemplate& chat_template,
                                       const CostIndexOptions& options);

}  // namespace equipoise
