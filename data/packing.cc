#include "data/packing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "balance/random.h"
#include "configs/error.h"

namespace equipoise {
namespace {

// Packs that are open at a time: more fill better and move samples further from their drawn place.
constexpr size_t kOpenPacks = 64;
constexpr uint64_t kOrder = 0;  // purpose of a random stream; 1 + source = which part is repeated

void Add(const SampleCost& cost, int64_t sample, LossWeight loss, Pack& pack) {
  pack.samples.push_back(sample);
  pack.tokens += cost.tokens;
  pack.tiles += cost.tiles;
  pack.trained += cost.trained;
  pack.weight += TargetWeight(loss, cost.trained) * cost.trained;
}

std::vector<Pack> FillPacks(const CostIndex& index, const std::vector<int64_t>& order,
                            int64_t max_tokens, LossWeight loss) {
  std::vector<Pack> packs, open;
  const auto close = [&](size_t which) {
    packs.push_back(std::move(open[which]));
    open.erase(open.begin() + static_cast<int64_t>(which));
  };
  for (const int64_t sample : order) {
    const int64_t room = max_tokens - index[sample].tokens;
    size_t best = open.size(), fullest = 0;
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].tokens <= room && (best == open.size() || open[i].tokens > open[best].tokens))
        best = i;
      if (open[i].tokens > open[fullest].tokens) fullest = i;
    }
    if (best == open.size()) {
      if (open.size() == kOpenPacks) close(fullest);
      best = open.size();
      open.emplace_back();
    }
    Add(index[sample], sample, loss, open[best]);
    if (open[best].tokens == max_tokens) close(best);
  }
  while (!open.empty()) close(0);
  return packs;
}

std::vector<std::vector<int64_t>> RecordsOfSources(const CostIndex& index, size_t sources) {
  std::vector<std::vector<int64_t>> records(sources);
  for (int64_t i = 0; i < index.size(); ++i) {
    const size_t source = index[i].source;
    EQUIPOISE_CHECK(source < sources, "source ", source, " of ", sources);
    records[source].push_back(i);
  }
  return records;
}

}  // namespace

LossWeight ParseLossWeight(const std::string& name) {
  if (name == "token") return LossWeight::kToken;
  if (name == "sample") return LossWeight::kSample;
  if (name == "square") return LossWeight::kSquare;
  throw ConfigError("train.loss: '" + name + "' is none of token, sample, square");
}

double TargetWeight(LossWeight kind, int64_t targets) {
  if (kind == LossWeight::kToken || targets == 0) return 1;
  const auto count = static_cast<double>(targets);
  return kind == LossWeight::kSample ? 1 / count : 1 / std::sqrt(count);
}

PackPlanner::PackPlanner(const CostIndex* index, Options options)
    : index_(index), options_(std::move(options)) {
  for (int64_t i = 0; i < index_->size(); ++i) {
    EQUIPOISE_CHECK((*index_)[i].tokens <= options_.max_tokens, "sample ", i);
  }
  const int64_t packs = PacksInEpoch(0);
  if (packs == 0) {
    throw DataError("data.train: no record can be used; see `equipoise data CONFIG check`");
  }
  if (packs < options_.global_batch) {
    throw DataError("data.train: an epoch has " + std::to_string(packs) +
                    " packs of data.max_tokens " + std::to_string(options_.max_tokens) +
                    ", a step needs train.global_batch " + std::to_string(options_.global_batch) +
                    "; lower one of them, or raise `repeat` of a source");
  }
}

const std::vector<Pack>& PackPlanner::Epoch(int64_t epoch) {
  if (cached_epoch_ == epoch) return packs_;
  const auto number = static_cast<uint64_t>(epoch);
  std::vector<int64_t> order;
  auto sources = RecordsOfSources(*index_, options_.repeat.size());
  for (size_t source = 0; source < sources.size(); ++source) {
    auto& records = sources[source];
    const double repeat = options_.repeat[source];
    const auto whole = static_cast<int64_t>(repeat);
    const auto part = static_cast<size_t>((repeat - static_cast<double>(whole)) *
                                          static_cast<double>(records.size()));
    for (int64_t i = 0; i < whole; ++i) order.insert(order.end(), records.begin(), records.end());
    if (whole > 0 && part > 0) {
      SplitMix random = KeyedRandom(options_.seed, number, 1 + source);
      Shuffle(std::span(records), random);
    }
    order.insert(order.end(), records.begin(), records.begin() + static_cast<int64_t>(part));
  }
  std::erase_if(order, [&](int64_t sample) { return (*index_)[sample].defect != Defect::kNone; });
  SplitMix random = KeyedRandom(options_.seed, number, kOrder);
  Shuffle(std::span(order), random);
  packs_ = FillPacks(*index_, order, options_.max_tokens, options_.loss);
  cached_epoch_ = epoch;
  return packs_;
}

StepPlan PackPlanner::Next(DataPosition& position) {
  StepPlan step;
  while (static_cast<int64_t>(step.packs.size()) < options_.global_batch) {
    const auto& packs = Epoch(position.epoch);
    if (position.pack >= static_cast<int64_t>(packs.size())) {
      position = {position.epoch + 1, 0};
      continue;
    }
    if (step.packs.empty()) step.epoch = position.epoch;
    const Pack& pack = packs[static_cast<size_t>(position.pack++)];
    step.packs.push_back(pack);
    step.trained += pack.trained;
    step.weight += pack.weight;
  }
  return step;
}

int64_t PackPlanner::PacksInEpoch(int64_t epoch) {
  return static_cast<int64_t>(Epoch(epoch).size());
}

double PackPlanner::FillShare(int64_t epoch) {
  const auto& packs = Epoch(epoch);
  const int64_t tokens =
      std::accumulate(packs.begin(), packs.end(), int64_t{0},
                      [](int64_t sum, const Pack& pack) { return sum + pack.tokens; });
  return static_cast<double>(tokens) / static_cast<double>(options_.max_tokens) /
         static_cast<double>(packs.size());
}

std::vector<Pack> PackInOrder(const CostIndex& index, int64_t max_tokens, int64_t most,
                              LossWeight loss) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < index.size() && static_cast<int64_t>(order.size()) < most; ++i) {
    if (index[i].defect == Defect::kNone) order.push_back(i);
  }
  return FillPacks(index, order, max_tokens, loss);
}

}  // namespace equipoise
