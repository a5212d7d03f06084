#include "data/loading/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "balance/groups/simple_groups.h"
#include "configs/base/error.h"

namespace equipoise {

LayerLoad Pack::useful() const {
  return {pictures.patches, pictures.patch_pairs, pictures.image_tokens, tokens, token_pairs,
          trained,          pictures.window_pairs};
}

LayerLoad Pack::load() const {
  LayerLoad load = useful();
  if (row_tokens == tokens) return load;
  load.tokens = row_tokens;
  load.token_pairs = static_cast<double>(std::ssize(samples)) * CausalPairs(longest);
  return load;
}

Pack MakePack(const CostIndex& index, std::span<const int64_t> samples, LossWeight loss, bool pad) {
  Pack pack;
  for (const int64_t sample : samples) {
    const SampleCost& cost = index[sample];
    pack.samples.push_back(sample);
    pack.tokens += cost.tokens;
    pack.pictures += cost.pictures();
    pack.trained += cost.trained;
    pack.weight += TargetWeight(loss, cost.trained) * cost.trained;
    pack.token_pairs += CausalPairs(cost.tokens);
    pack.longest = std::max<int64_t>(pack.longest, cost.tokens);
  }
  pack.row_tokens = pack.tokens;
  if (pad) pack.row_tokens = std::ssize(pack.samples) * pack.longest;
  return pack;
}

std::vector<RepeatedSources> SourceRepeats(const std::vector<SourceConfig>& sources) {
  std::vector<RepeatedSources> repeats;
  for (const SourceConfig& source : sources) {
    if (source.files > 0)
      repeats.push_back(
          {source.repeat, source.files, source.samples, source.take, source.max_samples});
  }
  return repeats;
}

std::vector<SampleSize> SizesOf(const CostIndex& index, const std::vector<int64_t>& samples) {
  std::vector<SampleSize> sizes;
  sizes.reserve(samples.size());
  for (const int64_t sample : samples) {
    const SampleCost& cost = index[sample];
    sizes.emplace_back(cost.pictures(), cost.tokens, cost.trained);
  }
  return sizes;
}

EpochPacker::EpochPacker(const CostIndex* index, Options options)
    : index_(index), options_(std::move(options)) {
  ChooseLimits(SamplesOf(0).list(), options_.groups);
  RefuseTooLittleData();
}

EpochSamples EpochPacker::SamplesOf(int64_t epoch) const {
  return EpochSamples(index_, options_.repeat, options_.groups.seed, epoch);
}

EpochWindows EpochPacker::WindowsOf(int64_t epoch, int64_t head, const GroupOptions& groups) const {
  return EpochWindows(SamplesOf(epoch).list(), groups, {options_.window, epoch, head});
}

void EpochPacker::RefuseTooLittleData() {
  const int64_t batch = options_.groups.global_batch;
  if (Form({0, batch - 1}, /*head=*/0)) return;
  const EpochSummary first = Summarize(0);
  const GroupOptions& groups = options_.groups;
  std::string limits_text = fmt::format("balance.tiles {} or balance.tokens {}",
                                        groups.limit_units(), groups.limits.tokens);
  if (HasFixedSamples(groups.method))
    limits_text = fmt::format("train.micro_batch {}, {}", groups.micro_batch, limits_text);
  if (first.groups == 0 && first.oversize > 0) {
    throw DataError(fmt::format("data.train: each of the {} samples is beyond {}; raise them",
                                first.oversize, limits_text));
  }
  if (first.groups == 0) {
    throw DataError("data.train: no record can be used; see `equipoise data CONFIG check`");
  }
  throw DataError(
      fmt::format("data.train: an epoch has {} packs within {}, a step needs train.global_batch "
                  "{}; lower one of them, or raise `repeat` of a source",
                  first.groups, limits_text, batch));
}

bool EpochPacker::Form(const DataPosition& position, int64_t head) {
  const bool other = forming_.epoch != position.epoch || forming_.head != head;
  if (other || position.pack < forming_.windows->begin()) {
    forming_ = {position.epoch, head, SamplesOf(position.epoch),
                WindowsOf(position.epoch, head, options_.groups)};
  }
  while (position.pack >= forming_.windows->end()) {
    if (!forming_.windows->Next()) return false;
  }
  return true;
}

Pack EpochPacker::PackAt(int64_t pack) const {
  const EpochWindows& window = *forming_.windows;
  const int64_t group = window.groups().order[static_cast<size_t>(pack - window.begin())];
  std::vector<int64_t> samples;
  for (const int64_t i : window.groups().groups[group]) {
    samples.push_back((*forming_.samples)[window.places()[static_cast<size_t>(i)]]);
  }
  return MakePack(*index_, samples, options_.loss, options_.groups.pad);
}

StepBatches EpochPacker::Next(DataPosition& position) {
  StepBatches step;
  const int64_t batch = options_.groups.global_batch;
  std::vector<Pack> packs;
  std::vector<LayerLoad> loads;
  while (std::ssize(packs) < batch) {
    // Steps follow one another, so the position gives the place of the epoch's first full step: the
    // packs before it (`head`) complete a step of the epoch before.
    const int64_t head = (position.pack + batch - std::ssize(packs)) % batch;
    if (!Form(position, head)) {
      position = {position.epoch + 1, 0};
      continue;
    }
    if (packs.empty()) step.epoch = position.epoch;
    while (std::ssize(packs) < batch && position.pack < forming_.windows->end()) {
      packs.push_back(PackAt(position.pack++));
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

EpochSummary EpochPacker::Summarize(int64_t epoch, const GroupOptions& groups) const {
  return SummarizeEpoch(WindowsOf(epoch, /*head=*/0, groups), options_.data_ranks);
}

BalanceMetrics MeasureStep(const StepBatches& step, const GroupOptions& options,
                           int64_t data_ranks) {
  BalanceMeter meter(MeterOptions(options, data_ranks));
  std::vector<MicroBatchLoad> loads;
  loads.reserve(step.packs.size());
  for (const Pack& pack : step.packs)
    loads.push_back({pack.useful(), std::ssize(pack.samples), pack.longest});
  meter.AddStep(loads);
  return meter.metrics();
}

namespace {

// Keeps `most` samples: the first of each source, as many as its share of all, and one at least
// where there are as many as sources.
void KeepFirstOfEach(const CostIndex& index, int64_t most, std::vector<int64_t>* order) {
  const auto all = std::ssize(*order);
  if (all <= most) return;
  std::map<int64_t, int64_t> room, kept;  // by source
  for (const int64_t sample : *order) ++room[index[sample].source];
  int64_t left = most;
  const auto keep = [&](int64_t source, int64_t more) {
    more = std::min({more, left, room[source] - kept[source]});
    kept[source] += more, left -= more;
  };
  for (const auto& [source, count] : room) keep(source, 1);
  const int64_t shared = left, others = std::max<int64_t>(1, all - std::ssize(room));
  for (const auto& [source, count] : room) keep(source, shared * (count - 1) / others);
  for (const auto& [source, count] : room) keep(source, left);
  std::erase_if(*order, [&](int64_t sample) { return kept[index[sample].source]-- <= 0; });
}

}  // namespace

std::vector<Pack> PackInOrder(const CostIndex& index, int64_t max_tokens, int64_t most,
                              LossWeight loss, const EpochSamples* samples) {
  std::vector<int64_t> order;
  const int64_t all = samples == nullptr ? index.size() : samples->size();
  for (int64_t place = 0; place < all; ++place) {
    const int64_t sample = samples == nullptr ? place : (*samples)[place];
    if (index[sample].defect == Defect::kNone) order.push_back(sample);
  }
  KeepFirstOfEach(index, most, &order);
  const SampleGroups groups =
      PackedGroups(SizesOf(index, order), Indices(std::ssize(order)), max_tokens);
  std::vector<Pack> packs;
  for (int64_t i = 0; i < groups.size(); ++i) {
    std::vector<int64_t> of_pack;
    for (const int64_t place : groups[i]) of_pack.push_back(order[static_cast<size_t>(place)]);
    packs.push_back(MakePack(index, of_pack, loss));
  }
  return packs;
}

}  // namespace equipoise
