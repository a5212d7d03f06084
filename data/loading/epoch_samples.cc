#include "data/loading/epoch_samples.h"

#include <algorithm>

#include "balance/load/random.h"
#include "configs/base/error.h"

namespace equipoise {
namespace {

// The first record whose source is not below `source`: records are in the order of their sources.
int64_t FirstRecord(const CostIndex& index, int64_t source) {
  int64_t begin = 0, end = index.size();
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (index[middle].source < source) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// As many of `all` as a share says, rounded down; a product that should be a whole number may be
// stored a little below it, as 0.29 * 100 is.
int64_t PartOf(int64_t all, double share) {
  return static_cast<int64_t>(share * static_cast<double>(all) + 1e-6);
}

}  // namespace

int64_t RepeatedSources::SamplesOf(int64_t records) const {
  if (most == 0) return samples;
  if (samples > 0) return std::min(samples, most);
  return records > most ? most : 0;
}

EpochSamples::EpochSamples(const CostIndex* index, const std::vector<RepeatedSources>& repeat,
                           uint64_t seed, int64_t epoch)
    : index_(index) {
  int64_t places = 0, source = 0;
  for (const RepeatedSources& group : repeat) {
    Block block{places, places, FirstRecord(*index, source), 0, 0, std::nullopt, 0};
    block.records = FirstRecord(*index, source + group.sources) - block.first;
    block.whole = static_cast<int64_t>(group.times);
    int64_t part = PartOf(block.records, group.times - static_cast<double>(block.whole));
    const int64_t limit = group.SamplesOf(block.records);
    const bool fixed = limit > 0 || block.whole == 0;
    if (limit > 0) {
      const int64_t samples = PartOf(limit, group.times);
      block.whole = samples / std::max<int64_t>(block.records, 1);
      part = samples % std::max<int64_t>(block.records, 1);
    }
    if (block.whole == 0 && part == 0 && group.times > 0 && block.records > 0) part = 1;
    const bool random = group.take == TakenPart::kRandom;
    if (part > 0 && (random || (!fixed && group.take == TakenPart::kFirst))) {
      block.part.emplace(block.records, KeyedRandom(seed, random ? 0 : static_cast<uint64_t>(epoch),
                                                    1 + static_cast<uint64_t>(source)));
    }
    if (group.take == TakenPart::kLast) block.part_first = block.records - part;
    block.end += block.whole * block.records + part;
    places = block.end;
    source += group.sources;
    blocks_.push_back(block);
  }
  EQUIPOISE_CHECK(FirstRecord(*index, source) == index->size(), "more sources than ", source);
}

int64_t EpochSamples::operator[](int64_t place) const {
  const auto block = std::partition_point(blocks_.begin(), blocks_.end(),
                                          [&](const Block& each) { return each.end <= place; });
  const int64_t own = place - block->begin, all = block->whole * block->records;
  if (own < all) return block->first + own % block->records;
  return block->first + (block->part ? (*block->part)(own - all) : block->part_first + own - all);
}

SampleList EpochSamples::list() const {
  return {size(), [samples = *this](int64_t place) -> std::optional<SampleSize> {
            const SampleCost& cost = (*samples.index_)[samples[place]];
            if (cost.defect != Defect::kNone) return std::nullopt;
            return SampleSize(cost.pictures(), cost.tokens, cost.trained);
          }};
}

}  // namespace equipoise
