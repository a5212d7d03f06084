#include "data/loading/agree_on_faults.h"

#include <catch2/catch.hpp>
#include <optional>
#include <set>

#include "tests/data/data_fixture.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

// Pictures of the samples of MixedLines() that have one: 1 has the wide one, 2 the tall one and
// another.
const char* PictureOf(int64_t sample) {
  return sample == 1 ? "images/wide.png" : "images/tall.png";
}

struct Loaded {
  LoadedPack pack;
  bool changed = false;
  bool operator==(const Loaded& other) const {
    const auto same = [](const at::Tensor& a, const at::Tensor& b) {
      return a.defined() == b.defined() && (!a.defined() || a.equal(b));
    };
    const MicroBatch &a = pack.batch, &b = other.pack.batch;
    return same(a.input_ids, b.input_ids) && same(a.targets, b.targets) &&
           same(a.position_ids, b.position_ids) && same(a.pixel_values, b.pixel_values) &&
           same(a.image_positions, b.image_positions) && a.noise == b.noise &&
           pack.targets == other.pack.targets && pack.weight == other.pack.weight;
  }
  std::set<int64_t> bad() const {
    std::set<int64_t> samples;
    for (const BadSample& sample : pack.bad) REQUIRE(samples.insert(sample.sample).second);
    return samples;
  }
};

// What each rank of tensor x context ranks has, each of which reads a folder of its own in which
// it cannot decode the pictures of these samples.
std::vector<Loaded> Load(int tensor, int context, const std::vector<std::set<int64_t>>& bad) {
  std::vector<Loaded> results(bad.size());
  RunRanks(tensor * context, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    DataFixture data;
    data.WriteRecords(DataFixture::MixedLines(4));
    const CostIndex index = data.Open();
    const Dataset dataset(data.config.train, data.sample_options(), &index, &data.chat_template);
    for (const int64_t sample : bad[rank]) {  // its head is whole
      const std::string png = ReadWholeFile(data.folder / PictureOf(sample));
      data.folder.Write(PictureOf(sample), png.substr(0, png.size() / 2));
    }
    const int at = world.rank();
    const auto along_tensor = world.Split(at / tensor, at % tensor, "tensor");
    const auto along_context = world.Split(at % tensor, at / tensor, "context");
    const std::vector<int64_t> samples = {0, 1, 2, 3};
    const Pack pack = MakePack(index, samples, LossWeight::kToken);
    Loaded& mine = results[rank];
    mine.pack = dataset.Load(pack);
    mine.pack.batch.noise = 7;
    mine.changed =
        AgreeOnFaults(dataset, pack, {along_tensor.get(), along_context.get()}, mine.pack);
  });
  return results;
}

TEST_CASE("what one rank cannot read is blank on all that share out its micro-batch",
          "[data][cpu]") {
  struct Case {
    int tensor, context;
    std::vector<std::set<int64_t>> bad;  // by rank
    std::vector<bool> changed;
  };
  const std::vector<Case> cases = {
      {2, 1, {{}, {}}, {false, false}},
      {2, 1, {{}, {1}}, {true, true}},
      {1, 2, {{1}, {}}, {true, true}},
      {2, 1, {{1}, {1}}, {false, false}},
      {2, 1, {{1}, {2}}, {true, true}},
      {2, 2, {{}, {}, {}, {2}}, {true, true, true, true}},
      {2, 2, {{}, {1}, {2}, {}}, {true, true, true, true}},
  };
  for (const Case& c : cases) {
    std::set<int64_t> all;
    for (const std::set<int64_t>& rank : c.bad) all.insert(rank.begin(), rank.end());
    CAPTURE(c.tensor, c.context, all.size());
    const std::vector<Loaded> ranks = Load(c.tensor, c.context, c.bad);
    const Loaded expected = Load(1, 1, {all})[0];
    CHECK(expected.bad() == all);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      CHECK(ranks[rank] == expected);
      CHECK(ranks[rank].bad() == all);
      CHECK(ranks[rank].changed == c.changed[rank]);
      for (size_t i = 0; i < ranks[rank].pack.bad.size(); ++i)
        CHECK(ranks[rank].pack.bad[i].reason == expected.pack.bad[i].reason);
    }
  }
}

TEST_CASE(
    "a pack that is loaded without its pictures has the samples blank that others cannot "
    "decode",
    "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(4));
  const CostIndex index = data.Open();
  const Dataset dataset(data.config.train, data.sample_options(), &index, &data.chat_template);
  const std::vector<int64_t> samples = {0, 1, 2};
  const Pack pack = MakePack(index, samples, LossWeight::kToken);
  const LoadedPack loaded = dataset.Load(pack, /*pictures=*/false, {"", "of another rank", ""});
  REQUIRE(loaded.bad.size() == 1);
  CHECK(loaded.bad[0].sample == 1);
  CHECK(loaded.bad[0].reason == "of another rank");
  CHECK(loaded.targets == pack.trained - index[1].trained);
}

}  // namespace
}  // namespace equipoise
