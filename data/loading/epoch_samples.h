#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "balance/load/permutation.h"
#include "balance/load/sample_groups.h"
#include "data/index/cost_index.h"

namespace equipoise {

// The samples of an epoch by place, in the order of the index, without a list of them: those of a
// source once, with `repeat` below 1 the first part of its records, above 1 all of them repeatedly,
// the fraction being another part in each epoch.
class EpochSamples {
 public:
  // `index` must outlive it. `repeat`: of each source.
  EpochSamples(const CostIndex* index, const std::vector<double>& repeat, uint64_t seed,
               int64_t epoch);

  int64_t size() const { return blocks_.empty() ? 0 : blocks_.back().end; }
  // The number of a sample in the index; of a defective one too.
  int64_t operator[](int64_t place) const;
  // Sizes by place; defective samples have none. Valid as long as the index.
  SampleList list() const;

 private:
  struct Block {                    // of one source
    int64_t begin, end;             // places
    int64_t first, records, whole;  // records in the index, and how often all of them come
    std::optional<Permutation> part;
  };
  const CostIndex* index_;
  std::vector<Block> blocks_;
};

}  // namespace equipoise
