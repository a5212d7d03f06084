#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat_template.h"
#include "data/data_config.h"

namespace equipoise {

// Why a record cannot be used, as far as the record and the heads of its files show.
enum class Defect : uint16_t {
  kNone = 0,
  kBadJson,            // not JSON, too deep, duplicate keys, invalid UTF-8
  kBadField,           // a field of the wrong type, or missing
  kNoConversation,     // no turns, or turns in an impossible order
  kPlaceholders,       // other number of <image> than pictures
  kImageMissing,
  kImageOutside,       // a path that leaves the image folder
  kImageUnreadable,    // the head of the file is no picture, or of a kind that is not supported
  kImageTooLarge,      // more pixels or bytes than the limits
  kTooManyTokens,      // its pictures do not fit in max_tokens
  kNothingTrained,     // no trained token (after truncation)
  kLineTooLong,
};
std::string_view DefectName(Defect defect);

// The cost of one sample; 32 bytes in the index file.
struct SampleCost {
  uint64_t offset = 0;         // of the line in its file
  uint32_t bytes = 0;          // of the line
  uint32_t tokens = 0;         // after image expansion and truncation
  uint32_t trained = 0;        // tokens that are learnt
  uint16_t tiles = 0;
  Defect defect = Defect::kNone;
  uint16_t source = 0;         // index in the list of sources
  uint16_t images = 0;
  uint32_t line = 0;           // 1-based, for messages
};

// Cost of every record of a list of sources: the base of order, shapes, packs, loss normalisation
// and resume. Built once (each rank a slice, see BuildOptions), cached beside the data under a name
// that is the hash of content, tokenizer, template and tiling, and memory-mapped read-only.
class CostIndex {
 public:
  struct BuildOptions {
    int64_t tokens_per_tile = 256;
    int64_t tile_size = 448;
    // This rank builds slice `slice` of `slices` and then waits, through `barrier`, for the others.
    int slice = 0;
    int slices = 1;
    void (*barrier)(void*) = nullptr;
    void* barrier_argument = nullptr;
    // Called now and then on slice 0 with the share done.
    void (*progress)(double share) = nullptr;
  };

  // Opens the cached index of `sources`, building it first where it is absent or stale.
  // Throws DataError for missing or empty annotation files.
  static CostIndex Open(const std::vector<SourceConfig>& sources, const DataConfig& config,
                        const ChatTemplate& chat_template, const BuildOptions& options);
  ~CostIndex();
  CostIndex(CostIndex&&) noexcept;
  CostIndex& operator=(CostIndex&&) noexcept;

  // Records of all sources one after the other, defective ones too; `repeat` is not applied.
  int64_t size() const { return size_; }
  const SampleCost& operator[](int64_t sample) const { return samples_[sample]; }
  uint64_t hash() const { return hash_; }     // of everything in it
  const std::string& path() const { return path_; }

 private:
  CostIndex() = default;
  std::string path_;
  const SampleCost* samples_ = nullptr;
  int64_t size_ = 0;
  uint64_t hash_ = 0;
  void* map_ = nullptr;
  size_t map_bytes_ = 0;
};

}  // namespace equipoise
