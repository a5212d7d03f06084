#include "data/packing.h"

#include <algorithm>
#include <cmath>

#include "balance/random.h"
#include "balance/simple_groups.h"
#include "configs/error.h"

namespace equipoise {
namespace {

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

LayerLoad Pack::load() const {
  if (row_tokens == tokens) return useful();
  return {tiles, row_tokens,
          static_cast<double>(std::ssize(samples)) * SingleSegment(0, longest).token_pairs,
          trained};
}

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

Pack MakePack(const CostIndex& index, std::span<const int64_t> samples, LossWeight loss, bool pad) {
  Pack pack;
  for (const int64_t sample : samples) {
    const SampleCost& cost = index[sample];
    pack.samples.push_back(sample);
    pack.tokens += cost.tokens;
    pack.tiles += cost.tiles;
    pack.trained += cost.trained;
    pack.weight += TargetWeight(loss, cost.trained) * cost.trained;
    pack.token_pairs += SingleSegment(0, cost.tokens).token_pairs;
    pack.longest = std::max<int64_t>(pack.longest, cost.tokens);
  }
  pack.row_tokens = pack.tokens;
  if (pad) pack.row_tokens = std::ssize(pack.samples) * pack.longest;
  return pack;
}

std::vector<double> SourceRepeats(const std::vector<SourceConfig>& sources) {
  std::vector<double> repeats;
  for (const SourceConfig& source : sources) repeats.push_back(source.repeat);
  return repeats;
}

std::vector<int64_t> SamplesOfEpoch(const CostIndex& index, const std::vector<double>& repeat,
                                    uint64_t seed, int64_t epoch) {
  std::vector<int64_t> samples;
  auto sources = RecordsOfSources(index, repeat.size());
  for (size_t source = 0; source < sources.size(); ++source) {
    auto& records = sources[source];
    const auto whole = static_cast<int64_t>(repeat[source]);
    const auto part = static_cast<int64_t>((repeat[source] - static_cast<double>(whole)) *
                                           static_cast<double>(records.size()));
    for (int64_t i = 0; i < whole; ++i)
      samples.insert(samples.end(), records.begin(), records.end());
    if (whole > 0 && part > 0) {
      SplitMix random = KeyedRandom(seed, static_cast<uint64_t>(epoch), 1 + source);
      Shuffle(std::span(records), random);
    }
    samples.insert(samples.end(), records.begin(), records.begin() + part);
  }
  std::erase_if(samples, [&](int64_t sample) { return index[sample].defect != Defect::kNone; });
  return samples;
}

std::vector<SampleSize> SizesOf(const CostIndex& index, const std::vector<int64_t>& samples) {
  std::vector<SampleSize> sizes;
  sizes.reserve(samples.size());
  for (const int64_t sample : samples) {
    const SampleCost& cost = index[sample];
    sizes.emplace_back(cost.tiles, static_cast<int32_t>(cost.tokens),
                       static_cast<int32_t>(cost.trained));
  }
  return sizes;
}

PackPlanner::PackPlanner(const CostIndex* index, Options options)
    : index_(index), options_(std::move(options)) {
  const std::vector<int64_t> samples =
      SamplesOfEpoch(*index_, options_.repeat, options_.groups.seed, 0);
  ChooseLimits(SizesOf(*index_, samples), options_.groups);
  RefuseTooLittleData();
}

void PackPlanner::RefuseTooLittleData() {
  const int64_t packs = PacksInEpoch(0), oversize = OversizeInEpoch(0);
  const GroupLimits& limits = options_.groups.limits;
  const std::string limits_text = "balance.tiles " + std::to_string(limits.tiles) +
                                  " or balance.tokens " + std::to_string(limits.tokens);
  if (packs == 0 && oversize > 0) {
    throw DataError("data.train: each of the " + std::to_string(oversize) + " samples is beyond " +
                    limits_text + "; raise them");
  }
  if (packs == 0) {
    throw DataError("data.train: no record can be used; see `equipoise data CONFIG check`");
  }
  if (packs < options_.groups.global_batch) {
    throw DataError("data.train: an epoch has " + std::to_string(packs) + " packs within " +
                    limits_text + ", a step needs train.global_batch " +
                    std::to_string(options_.groups.global_batch) +
                    "; lower one of them, or raise `repeat` of a source");
  }
}

const PackPlanner::Planned& PackPlanner::Epoch(int64_t epoch, int64_t head) {
  if (planned_.epoch == epoch && planned_.head == head) return planned_;
  planned_.epoch = epoch;
  planned_.head = head;
  planned_.samples = SamplesOfEpoch(*index_, options_.repeat, options_.groups.seed, epoch);
  planned_.groups = PlanEpoch(SizesOf(*index_, planned_.samples), options_.groups, epoch, head);
  return planned_;
}

const PackPlanner::Planned& PackPlanner::AnyOrder(int64_t epoch) {
  return Epoch(epoch, planned_.epoch == epoch ? planned_.head : 0);
}

Pack PackPlanner::PackAt(const Planned& epoch, int64_t place) const {
  std::vector<int64_t> samples;
  const int64_t group = epoch.groups.order[static_cast<size_t>(place)];
  for (const int64_t i : epoch.groups.groups[group]) {
    samples.push_back(epoch.samples[static_cast<size_t>(i)]);
  }
  return MakePack(*index_, samples, options_.loss, options_.pad);
}

StepPlan PackPlanner::Next(DataPosition& position) {
  StepPlan step;
  const int64_t batch = options_.groups.global_batch;
  std::vector<Pack> packs;
  std::vector<LayerLoad> loads;
  while (std::ssize(packs) < batch) {
    // Steps follow each other, so the place in the epoch tells where its first full step began; a
    // step that began in the epoch before takes what it lacks.
    const int64_t head = packs.empty() ? position.pack % batch : batch - std::ssize(packs);
    const Planned& epoch = Epoch(position.epoch, head);
    if (position.pack >= epoch.groups.size()) {
      position = {position.epoch + 1, 0};
      continue;
    }
    if (packs.empty()) step.epoch = position.epoch;
    while (std::ssize(packs) < batch && position.pack < epoch.groups.size()) {
      packs.push_back(PackAt(epoch, position.pack++));
      loads.push_back(packs.back().load());
      step.trained += packs.back().trained;
      step.weight += packs.back().weight;
    }
  }
  for (const int64_t place : RowsOfStep(loads, options_.groups, options_.data_ranks)) {
    step.packs.push_back(std::move(packs[static_cast<size_t>(place)]));
  }
  return step;
}

int64_t PackPlanner::PacksInEpoch(int64_t epoch) { return AnyOrder(epoch).groups.size(); }

int64_t PackPlanner::OversizeInEpoch(int64_t epoch) {
  return std::ssize(AnyOrder(epoch).groups.oversize);
}

BalanceMetrics PackPlanner::Measure(int64_t epoch) {
  return MeasureEpoch(AnyOrder(epoch).groups, options_.groups, options_.data_ranks);
}

double PackPlanner::FillShare(int64_t epoch) {
  int64_t tokens = 0, room = 0;
  for (const MicroBatchLoad& one : AnyOrder(epoch).groups.loads) {
    tokens += one.load.tokens;
    room += RoomOf(one, options_.groups);
  }
  return static_cast<double>(tokens) / static_cast<double>(room);
}

BalanceMetrics MeasureStep(const StepPlan& step, const GroupOptions& options, int64_t data_ranks) {
  BalanceMeter meter({data_ranks, options.cost, HasFixedSamples(options.method)});
  std::vector<MicroBatchLoad> loads;
  int64_t tokens = 0, room = 0;
  for (const Pack& pack : step.packs) {
    loads.push_back({pack.load(), std::ssize(pack.samples), pack.longest});
    tokens += pack.tokens;
    room += RoomOf(loads.back(), options);
  }
  meter.AddStep(loads);
  BalanceMetrics metrics = meter.metrics();
  metrics.pad_ratio = 1 - static_cast<double>(tokens) / static_cast<double>(room);
  return metrics;
}

std::vector<Pack> PackInOrder(const CostIndex& index, int64_t max_tokens, int64_t most,
                              LossWeight loss) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < index.size() && std::ssize(order) < most; ++i) {
    if (index[i].defect == Defect::kNone) order.push_back(i);
  }
  const SampleGroups groups =
      PackedGroups(SizesOf(index, order), Indices(std::ssize(order)), max_tokens);
  std::vector<Pack> packs;
  for (int64_t i = 0; i < groups.size(); ++i) {
    std::vector<int64_t> samples;
    for (const int64_t place : groups[i]) samples.push_back(order[static_cast<size_t>(place)]);
    packs.push_back(MakePack(index, samples, loss));
  }
  return packs;
}

}  // namespace equipoise
