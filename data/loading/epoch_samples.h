#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "balance/load/permutation.h"
#include "balance/load/sample_groups.h"
#include "data/index/cost_index.h"
#include "data/settings/taken_part.h"

namespace equipoise {

// Sources that are repeated as one, as the files of a range are.
struct RepeatedSources {
  double times = 1;
  int64_t sources = 1;
  int64_t samples = 0;  // of their records used in an epoch, `times` so many; 0: all
  TakenPart take = TakenPart::kFirst;
  int64_t most = 0;  // likewise, where they have more records; 0: all

  // `samples` in force where there are so many records.
  int64_t SamplesOf(int64_t records) const;
};

// Samples of an epoch by place, in the order of the index, computed instead of listed. Sources
// contribute their records `repeat` times: below 1 a part of them, which `take` names, and at least
// one; above 1 all of them repeatedly, and for the fraction a part that is drawn for each epoch,
// where `take` is the first. Where `samples` says how many, the part is the same in each epoch.
class EpochSamples {
 public:
  // `index` must outlive this object; `repeat` has all sources, in their order.
  EpochSamples(const CostIndex* index, const std::vector<RepeatedSources>& repeat, uint64_t seed,
               int64_t epoch);

  int64_t size() const { return blocks_.empty() ? 0 : blocks_.back().end; }
  // The sample at `place`, by its number in the index; it may be defective.
  int64_t operator[](int64_t place) const;
  // Sizes by place; defective samples have none. Valid as long as the index.
  SampleList list() const;

 private:
  // The places of sources that are repeated as one.
  struct Block {
    int64_t begin, end;               // places
    int64_t first, records;           // their records in the index
    int64_t whole;                    // repetitions of all records
    std::optional<Permutation> part;  // order of the records of the fraction
    int64_t part_first = 0;           // the first of them, where they are not drawn
  };
  const CostIndex* index_;
  std::vector<Block> blocks_;
};

}  // namespace equipoise
