#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/records/defect.h"
#include "models/spec/layer_load.h"

namespace equipoise {

// Cost of one sample; 56 bytes in the index file.
struct SampleCost {
  uint64_t offset = 0;       // of the line in its file
  uint64_t patch_pairs = 0;  // these two, patches and image_tokens as in PictureLoad
  uint64_t window_pairs = 0;
  uint32_t patches = 0;
  uint32_t image_tokens = 0;
  uint32_t bytes = 0;    // of the line
  uint32_t tokens = 0;   // after image expansion and truncation
  uint32_t trained = 0;  // tokens that are targets
  uint32_t line = 0;     // 1-based, for messages
  uint32_t images = 0;
  Defect defect = Defect::kNone;
  uint16_t source = 0;  // index in the list of sources

  PictureLoad pictures() const {
    return {patches, static_cast<double>(patch_pairs), image_tokens,
            static_cast<double>(window_pairs)};
  }
};

// Costs of all records of a list of sources: the base of order, shapes, packs, loss normalization
// and resume. Memory-mapped read-only; OpenCostIndex (cost_index_open.h) finds or builds it.
// docs/cost_index_format.md specifies the bytes. LibTorch-free.
class CostIndex {
 public:
  // Maps the index at `path`; nullopt when the file is absent, damaged, or of another key.
  static std::optional<CostIndex> Map(const std::string& path, uint64_t key);
  ~CostIndex();
  CostIndex(CostIndex&&) noexcept;
  CostIndex& operator=(CostIndex&&) noexcept;

  // Records of all sources one after the other, defective ones too; `repeat` is not applied.
  int64_t size() const { return size_; }
  const SampleCost& operator[](int64_t sample) const { return samples_[sample]; }
  // Hash of the content, by which checkpoints know their samples; for tiles the same as in version
  // 1 of the format.
  uint64_t hash() const { return hash_; }
  const std::string& path() const { return path_; }
  // Number of records with each defect; [kNone] those that can be used.
  std::vector<int64_t> CountDefects() const;
  // Number of records that cannot be used: those with a defect but kTooLong.
  int64_t CountBad() const;
  // Counts of their defects, such as "8 image_missing, 1 bad_json"; empty where there are none.
  std::string DescribeDefects() const;

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
