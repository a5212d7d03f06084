#include "data/loading/packing.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "balance/load/random.h"
#include "configs/base/error.h"
#include "data/index/cost_index_file.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

// An index of `sizes.size()` sources with samples of random costs; every tenth is defective.
CostIndex RandomIndex(const TemporaryFolder& folder, const std::vector<int64_t>& sizes,
                      uint32_t most_tokens) {
  SplitMix random(7);
  std::vector<SampleCost> costs;
  for (size_t source = 0; source < sizes.size(); ++source) {
    for (int64_t i = 0; i < sizes[source]; ++i) {
      SampleCost cost;
      cost.source = static_cast<uint16_t>(source);
      cost.tokens = static_cast<uint32_t>(2 + random.Below(most_tokens - 1));
      cost.trained = cost.tokens / 2;
      cost.patches = static_cast<uint32_t>(random.Below(3));
      cost.patch_pairs = 3 * cost.patches;
      cost.image_tokens = 2 * cost.patches;
      if (i % 10 == 9) cost.defect = Defect::kImageMissing;
      costs.push_back(cost);
    }
  }
  WriteIndexFile(folder / "index", /*key=*/1, /*content=*/1, costs);
  return std::move(*CostIndex::Map(folder / "index", 1));
}

EpochPacker::Options Options(int64_t max_tokens, int64_t global_batch, uint64_t seed,
                             const std::vector<double>& repeat) {
  EpochPacker::Options options;
  options.groups.limits = {20, max_tokens};
  options.groups.global_batch = global_batch;
  options.groups.seed = seed;
  options.groups.cost = {.patch = 300, .token = 1};
  for (const double times : repeat) options.repeat.push_back({times});
  return options;
}

std::vector<std::vector<int64_t>> Samples(const StepBatches& step) {
  std::vector<std::vector<int64_t>> samples;
  for (const Pack& pack : step.packs) samples.push_back(pack.samples);
  return samples;
}

std::map<int64_t, int64_t> UsesInEpoch(EpochPacker& planner, int64_t epoch) {
  std::map<int64_t, int64_t> uses;
  DataPosition position{epoch, 0};
  const int64_t packs = planner.Summarize(epoch).groups;
  while (position.epoch == epoch && position.pack < packs) {
    const StepBatches step = planner.Next(position);
    for (const int64_t sample : step.packs[0].samples) ++uses[sample];
  }
  return uses;
}

TEST_CASE("an epoch uses every usable sample once, within the limit", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {700, 300}, 200);
  EpochPacker planner(&index, Options(256, 1, 3, {1.0, 1.0}));
  const auto uses = UsesInEpoch(planner, 4);
  CHECK(uses.size() == 900);
  for (const auto& [sample, count] : uses) {
    CHECK(index[sample].defect == Defect::kNone);
    CHECK(count == 1);
  }
  DataPosition position;
  const int64_t packs = planner.Summarize(0).groups;
  while (position.epoch == 0 && position.pack < packs) {
    const Pack pack = planner.Next(position).packs[0];
    int64_t tokens = 0, trained = 0;
    PictureLoad pictures;
    for (const int64_t sample : pack.samples) {
      tokens += index[sample].tokens;
      pictures += index[sample].pictures();
      trained += index[sample].trained;
    }
    CHECK(tokens <= 256);
    CHECK(tokens == pack.tokens);
    CHECK(pictures == pack.pictures);
    CHECK(trained == pack.trained);
    CHECK(pack.weight == Approx(trained));
  }
  CHECK(planner.Summarize(0).balance.fill_share > 0.95);
}

TEST_CASE("packs ask of the layers what was planned for their samples", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {40}, 200);
  const std::vector<int64_t> samples = {0, 3, 4, 38};
  const LayerLoad planned = GroupLoad(SizesOf(index, samples), Indices(std::ssize(samples)));
  const Pack pack = MakePack(index, samples, LossWeight::kToken);
  CHECK(pack.load().patches == planned.patches);
  CHECK(pack.load().patch_pairs == planned.patch_pairs);
  CHECK(pack.load().image_tokens == planned.image_tokens);
  CHECK(pack.load().tokens == planned.tokens);
  CHECK(pack.load().token_pairs == planned.token_pairs);
  CHECK(pack.load().targets == planned.targets);
  CHECK(planned.targets == pack.trained);
  CHECK(planned.targets < planned.tokens);
}

TEST_CASE("repeat takes the first part, or repeats with another part each epoch", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {100, 100, 100}, 50);
  EpochPacker planner(&index, Options(256, 1, 3, {0.25, 2.5, 0.0}));
  std::set<std::set<int64_t>> parts;
  for (const int64_t epoch : {0, 1}) {
    const auto uses = UsesInEpoch(planner, epoch);
    std::set<int64_t> thrice;
    int64_t of_second = 0;
    for (const auto& [sample, count] : uses) {
      if (sample < 100) {
        CHECK(sample < 25);
        CHECK(count == 1);
        continue;
      }
      CHECK(sample < 200);
      CHECK((count == 2 || count == 3));
      of_second += count;
      if (count == 3) thrice.insert(sample);
    }
    CHECK(uses.size() == 23 + 90);  // of the first 25 two are defective
    CHECK(std::abs(of_second - 225) <= 5);
    parts.insert(thrice);
  }
  CHECK(parts.size() == 2);
}

TEST_CASE("a fraction of several files is one of all their records", "[data][cpu]") {
  const TemporaryFolder folder, other;
  const auto list = [](const CostIndex& index, const std::vector<RepeatedSources>& repeat) {
    std::vector<int64_t> samples;
    const EpochSamples epoch(&index, repeat, /*seed=*/3, /*epoch=*/1);
    for (int64_t place = 0; place < epoch.size(); ++place) samples.push_back(epoch[place]);
    return samples;
  };
  const CostIndex files = RandomIndex(folder, {5, 5, 1, 1, 1, 1, 7}, 50);
  const CostIndex one = RandomIndex(other, {10, 4, 7}, 50);
  const auto samples = list(files, {{1.5, 2}, {0.25, 4}, {1, 1}});
  CHECK(samples.size() == 15 + 1 + 7);
  CHECK(samples == list(one, {{1.5}, {0.25}, {1}}));
  SourceConfig first{"0.tar"}, second{"1.tar"};
  first.files = 2;
  second.files = 0;
  const auto repeats = SourceRepeats({first, second, {"a.jsonl", ".", 0.5}});
  REQUIRE(repeats.size() == 2);
  CHECK(repeats[0].sources == 2);
  CHECK(repeats[1].times == 0.5);
}

TEST_CASE("a fraction that makes a whole number of records loses none of them", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {100}, 50);
  const auto size = [&](double times, int64_t samples = 0) {
    return EpochSamples(&index, {{times, 1, samples}}, /*seed=*/3, /*epoch=*/0).size();
  };
  CHECK(0.29 * 100 < 29);  // as it is stored
  CHECK(size(0.29) == 29);
  CHECK(size(0.29, 100) == 29);
  CHECK(size(1.1) == 110);
  CHECK(size(0.295) == 29);
  CHECK(size(0.999999) == 99);
}

TEST_CASE("a number of samples is the same in all epochs", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {20, 30, 10}, 50);
  const auto list = [&](const std::vector<RepeatedSources>& repeat, uint64_t seed, int64_t epoch) {
    std::vector<int64_t> samples;
    const EpochSamples each(&index, repeat, seed, epoch);
    for (int64_t place = 0; place < each.size(); ++place) samples.push_back(each[place]);
    return samples;
  };
  // 12 of the first 50 at random, and each of the last ten twice and half of them once more.
  const std::vector<RepeatedSources> repeat = {{1, 2, 12, TakenPart::kRandom},
                                               {1, 1, 25, TakenPart::kRandom}};
  const auto samples = list(repeat, 3, 0);
  REQUIRE(samples.size() == 12 + 25);
  const std::set<int64_t> drawn(samples.begin(), samples.begin() + 12);
  CHECK(drawn.size() == 12);
  CHECK(*drawn.rbegin() >= 12);  // not the first part
  CHECK(*drawn.rbegin() < 50);
  std::map<int64_t, int> uses;
  for (size_t i = 12; i < samples.size(); ++i) ++uses[samples[i]];
  CHECK(uses.size() == 10);
  CHECK(std::all_of(uses.begin(), uses.end(),
                    [](const auto& use) { return use.second == 2 || use.second == 3; }));
  CHECK(list(repeat, 3, 5) == samples);
  CHECK(list(repeat, 4, 0) != samples);
  CHECK(list({{0.5, 2, 12}, {0, 1, 25}}, 3, 0) == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(list({{1, 2, 3, TakenPart::kLast}, {0, 1}}, 3, 0) == std::vector<int64_t>{47, 48, 49});
  CHECK(list({{0.04, 2, 0, TakenPart::kLast}, {0, 1}}, 3, 0) == std::vector<int64_t>{48, 49});
  const auto tenth = list({{0.1, 2, 0, TakenPart::kRandom}, {0, 1}}, 3, 0);
  CHECK(tenth.size() == 5);
  CHECK(tenth != std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(tenth == list({{0.1, 2, 0, TakenPart::kRandom}, {0, 1}}, 3, 7));
  CHECK(list({{0.001, 2}, {0, 1}}, 3, 0) == std::vector<int64_t>{0});  // at least one
  SourceConfig source{"a.jsonl"};
  source.samples = 7;
  source.max_samples = 5;
  CHECK(SourceRepeats({source})[0].samples == 7);
  CHECK(SourceRepeats({source})[0].SamplesOf(3) == 5);
  // At most so many: the first, of sources with more.
  const RepeatedSources few = {1, 2, 0, TakenPart::kFirst, 3}, none = {0, 1};
  CHECK(list({few, none}, 3, 4) == std::vector<int64_t>{0, 1, 2});
  CHECK(list({{2, 2, 0, TakenPart::kLast, 3}, none}, 3, 4) ==
        std::vector<int64_t>{44, 45, 46, 47, 48, 49});
  CHECK(list({{1, 2, 0, TakenPart::kFirst, 50}, none}, 3, 4).size() == 50);
  CHECK(list({{1, 2, 70, TakenPart::kFirst, 60}, none}, 3, 4).size() == 60);
}

TEST_CASE("the order depends on seed and epoch alone", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {500}, 100);
  const auto first_step = [&](uint64_t seed, int64_t epoch) {
    EpochPacker planner(&index, Options(256, 4, seed, {1.0}));
    DataPosition position{epoch, 0};
    return Samples(planner.Next(position));
  };
  CHECK(first_step(1, 0) == first_step(1, 0));
  CHECK(first_step(1, 0) != first_step(2, 0));
  CHECK(first_step(1, 0) != first_step(1, 1));
  // Stored order: a change here changes what every earlier run would train on after a resume.
  SplitMix random = KeyedRandom(1, 2, 3);
  std::vector<int> values = {0, 1, 2, 3, 4, 5, 6, 7};
  Shuffle(std::span(values), random);
  CHECK(values == std::vector<int>{6, 0, 3, 1, 5, 4, 2, 7});
}

TEST_CASE("steps cross the end of an epoch and go on from any position", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {90}, 100);
  const std::pair<const char*, int64_t> cases[] = {
      {"packed", 0}, {"isf+", 0}, {"packed", 40}, {"isf+", 40}, {"isf", 33}};
  for (const auto& [method, window] : cases) {
    INFO(method << ", window " << window);
    EpochPacker::Options options = Options(256, 7, 5, {1.0});
    options.groups.method = ParseEnum<GroupMethod>(method).value();
    options.window = window;
    EpochPacker planner(&index, options);
    DataPosition position;
    std::vector<DataPosition> before;
    std::vector<StepBatches> steps;
    bool crossed = false;
    for (int i = 0; i < 24; ++i) {
      before.push_back(position);
      steps.push_back(planner.Next(position));
      CHECK(steps.back().packs.size() == 7);
      const bool at_end = before.back().pack == planner.Summarize(before.back().epoch).groups;
      CHECK(steps.back().epoch == before.back().epoch + (at_end ? 1 : 0));
      crossed = crossed || (position.epoch != before.back().epoch && position.pack > 0);
      int64_t trained = 0;
      for (const Pack& pack : steps.back().packs) trained += pack.trained;
      CHECK(steps.back().trained == trained);
    }
    CHECK(crossed);
    for (size_t i = 0; i < steps.size(); ++i) {
      EpochPacker resumed(&index, options);
      DataPosition start = before[i];
      CHECK(Samples(resumed.Next(start)) == Samples(steps[i]));
    }
    // Over whole epochs each sample is used equally often, also where a step spans two of them.
    std::map<int64_t, int64_t> uses;
    position = {};
    for (int i = 0; position.epoch < 7 || position.pack > 0; ++i) {
      REQUIRE(i < 100);
      for (const Pack& pack : planner.Next(position).packs) {
        for (const int64_t sample : pack.samples) ++uses[sample];
      }
      if (position.pack == planner.Summarize(position.epoch).groups) break;
    }
    CHECK(uses.size() == 81);
    for (const auto& [sample, count] : uses) CHECK(count == position.epoch + 1);
  }
}

TEST_CASE("a step's set of packs is the same for any number of data ranks", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {900}, 100);
  const auto steps = [&](int64_t data_ranks, int64_t window) {
    EpochPacker::Options options = Options(256, 8, 5, {1.0});
    options.data_ranks = data_ranks;
    options.window = window;
    EpochPacker planner(&index, options);
    std::vector<std::set<std::vector<int64_t>>> sets;
    DataPosition position;
    for (int i = 0; i < 20; ++i) {
      const auto samples = Samples(planner.Next(position));
      sets.emplace_back(samples.begin(), samples.end());
    }
    return sets;
  };
  for (const int64_t window : {0, 200}) {
    CHECK(steps(1, window) == steps(2, window));
    CHECK(steps(1, window) == steps(8, window));
  }
  CHECK(steps(1, 200) != steps(1, 0));
  CHECK(steps(1, 900) == steps(1, 0));
}

TEST_CASE("a step's balance is measured as it is computed", "[data][cpu]") {
  StepBatches step;
  for (const int64_t tokens : {300, 400}) {
    Pack& pack = step.packs.emplace_back();
    pack.samples = {0, 1};
    pack.tokens = pack.row_tokens = tokens;
    pack.longest = tokens - 100;
    pack.pictures.patches = tokens / 100;
  }
  GroupOptions options;
  options.limits = {9, 500};
  const BalanceMetrics packed = MeasureStep(step, options, 2);
  CHECK(packed.pad_ratio == 0);
  CHECK(packed.fill_share == Approx(0.7));
  CHECK(packed.dist_ratio_text == Approx(0.125));
  CHECK(packed.dist_ratio_vision == Approx(0.125));
  options.method = GroupMethod::kRandom;
  CHECK(MeasureStep(step, options, 2).pad_ratio == 0);
  CHECK(MeasureStep(step, options, 2).dist_ratio_text == Approx(0.125));
  options.pad = true;
  for (Pack& pack : step.packs) pack.row_tokens = std::ssize(pack.samples) * pack.longest;
  const BalanceMetrics padded = MeasureStep(step, options, 2);
  CHECK(padded.pad_ratio == Approx(0.3));  // 700 of 2 x 200 + 2 x 300
  CHECK(padded.dist_ratio_text == Approx(1.0 / 6));
}

TEST_CASE("too little data for a step is refused", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {9}, 10);
  CHECK_THROWS_AS(EpochPacker(&index, Options(256, 2, 0, {1.0})), DataError);
  CHECK_THROWS_AS(EpochPacker(&index, Options(256, 1, 0, {0.0})), DataError);
  EpochPacker::Options options = Options(1, 1, 0, {1.0});  // each sample has two tokens or more
  CHECK_THROWS_WITH(EpochPacker(&index, options), Contains("beyond balance.tiles"));
}

TEST_CASE("loss weights add up to tokens, samples, or roots", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {20}, 50);
  double roots = 0, tokens = 0;
  for (int64_t i = 0; i < index.size(); ++i) {
    if (index[i].defect != Defect::kNone) continue;
    roots += std::sqrt(index[i].trained);
    tokens += index[i].trained;
  }
  const auto weight = [&](const std::string& loss) {
    double sum = 0;
    for (const Pack& pack : PackInOrder(index, 256, 1000, ParseEnum<LossWeight>(loss).value()))
      sum += pack.weight;
    return sum;
  };
  CHECK(weight("token") == Approx(tokens));
  CHECK(weight("sample") == Approx(18));
  CHECK(weight("square") == Approx(roots));
}

TEST_CASE("held-out packs keep the first usable samples", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {40}, 50);
  std::set<int64_t> used;
  for (const Pack& pack : PackInOrder(index, 64, 12))
    used.insert(pack.samples.begin(), pack.samples.end());
  CHECK(used == std::set<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12});
}

TEST_CASE("held-out packs keep samples of every source, as many as its share", "[data][cpu]") {
  const TemporaryFolder folder;
  const CostIndex index = RandomIndex(folder, {20, 60, 4}, 50);
  const auto kept = [&](int64_t most) {
    std::map<int64_t, int64_t> counts;
    for (const Pack& pack : PackInOrder(index, 64, most))
      for (const int64_t sample : pack.samples) ++counts[index[sample].source];
    return counts;
  };
  using Counts = std::map<int64_t, int64_t>;
  const Counts all = kept(1000);
  REQUIRE(all.size() == 3);
  const int64_t usable = all.at(0) + all.at(1) + all.at(2);
  CHECK(kept(usable) == all);
  for (const int64_t most : {3, 10, 30, 60}) {
    const Counts some = kept(most);
    int64_t sum = 0;
    for (const auto& [source, count] : some) sum += count;
    CHECK(sum == most);
    REQUIRE(some.size() == 3);
    for (const auto& [source, count] : some)
      CHECK(std::abs(static_cast<double>(count) - static_cast<double>(most * all.at(source)) /
                                                      static_cast<double>(usable)) <= 2);
  }
  CHECK(kept(2) == Counts{{0, 1}, {1, 1}});
}

}  // namespace
}  // namespace equipoise
