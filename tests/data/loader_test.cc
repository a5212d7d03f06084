#include "data/loading/loader.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "data/images/image.h"
#include "data/images/image_processor.h"
#include "data/records/annotation_file.h"
#include "tests/data/data_fixture.h"
#include "tests/trainer/run_python.h"

namespace equipoise {
namespace {

std::vector<int64_t> Ints(const at::Tensor& tensor) {
  const int64_t* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

std::vector<float> Floats(const at::Tensor& tensor) {
  const float* data = tensor.const_data_ptr<float>();
  return {data, data + tensor.numel()};
}

std::vector<uint8_t> Bytes(const at::Tensor& tensor) {
  const uint8_t* data = tensor.const_data_ptr<uint8_t>();
  return {data, data + tensor.numel()};
}

// Records, their index and data set; one pack of the first samples.
struct LoaderFixture {
  explicit LoaderFixture(const std::vector<std::string>& lines,
                         LossWeight weight = LossWeight::kToken)
      : loss(weight) {
    data.WriteRecords(lines);
    index.emplace(data.Open());
    dataset.emplace(data.config.train, data.sample_options(), &*index, &data.chat_template, weight);
  }
  Pack PackOf(const std::vector<int64_t>& samples) const { return MakePack(*index, samples, loss); }
  LossWeight loss;
  DataFixture data;
  std::optional<CostIndex> index;
  std::optional<Dataset> dataset;
};

TEST_CASE("a pack holds its samples' ids, shifted targets, positions and borders", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(8));
  const Pack pack = fixture.PackOf({2, 0, 1, 7});
  const LoadedPack loaded = fixture.dataset->Load(pack);
  CHECK(loaded.bad.empty());
  CHECK(loaded.targets == pack.trained);
  CHECK(loaded.weight == Approx(pack.weight));
  const MicroBatch& batch = loaded.batch;
  // What is planned for the head is what it will work on.
  CHECK(pack.load().targets == batch.targets.ne(kNoTarget).sum().item<int64_t>());
  CHECK(pack.load().targets < pack.load().tokens);
  CHECK(batch.planned_targets == pack.trained);
  CHECK(batch.samples == pack.samples);
  CHECK_FALSE(batch.target_weights.defined());
  const auto ids = Ints(batch.input_ids), targets = Ints(batch.targets),
             positions = Ints(batch.position_ids);
  REQUIRE(batch.cu_seqlens.size() == 5);
  std::vector<int64_t> image_positions;
  for (size_t segment = 0; segment < 4; ++segment) {
    // The record encoded again by hand.
    const ScannedSample sample = fixture.dataset->Scan(pack.samples[segment]);
    std::vector<int64_t> image_tokens;
    for (const PictureLoad& picture : sample.pictures) image_tokens.push_back(picture.image_tokens);
    const auto encoded = fixture.data.chat_template.Encode(sample.record.turns, image_tokens);
    const int64_t begin = batch.cu_seqlens[segment], tokens = batch.cu_seqlens[segment + 1] - begin;
    REQUIRE(tokens == std::ssize(encoded.ids));
    for (int64_t i = 0; i < tokens; ++i) {
      const auto at = static_cast<size_t>(begin + i), own = static_cast<size_t>(i);
      CHECK(ids[at] == encoded.ids[own]);
      CHECK(positions[at] == i);
      const bool learnt = i + 1 < tokens && encoded.trained[own + 1] != 0;
      CHECK(targets[at] == (learnt ? encoded.ids[own + 1] : -100));
      if (encoded.ids[own] == fixture.data.chat_template.image_token())
        image_positions.push_back(begin + i);
    }
  }
  CHECK(batch.cu_seqlens.back() == pack.tokens);
  CHECK(Ints(batch.image_positions) == image_positions);
  CHECK(std::ssize(image_positions) == pack.pictures.image_tokens);
}

// Writes the fixture's records anew in another form, by Python, and reads the pack of them.
LoadedPack LoadedFrom(LoaderFixture& fixture, const std::string& name, const std::string& script) {
  DataFixture& data = fixture.data;
  RunPython("import base64, io, json, tarfile\nfolder = '" + data.folder.path() +
            "'\nrecords = [json.loads(line) for line in open(folder + '/train.jsonl')]\n"
            "def names(r): return [r['image']] if isinstance(r.get('image'), str) else "
            "r.get('image', [])\n"
            "def picture(name): return open(folder + '/images/' + name, 'rb').read()\n" +
            script);
  DataConfig config = data.config;
  config.train[0].annotations = data.folder / name;
  const CostIndex index =
      OpenCostIndex(config.train, config, data.chat_template, data.options()).index;
  REQUIRE(index.CountDefects()[0] == 8);
  const Dataset dataset(config.train, data.sample_options(), &index, &data.chat_template);
  const std::vector<int64_t> samples = {2, 0, 1, 7, 3};
  LoadedPack loaded = dataset.Load(MakePack(index, samples, LossWeight::kToken));
  CHECK(loaded.bad.empty());
  return loaded;
}

TEST_CASE("the same records in any form are the same pack", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(8));
  const LoadedPack expected = fixture.dataset->Load(fixture.PackOf({2, 0, 1, 7, 3}));
  const std::pair<const char*, std::string> forms[] = {
      {"array.json", "json.dump(records, open(folder + '/array.json', 'w'), indent=2)\n"},
      {"chat.jsonl",
       "role = {'human': 'user', 'gpt': 'assistant'}\n"
       "out = open(folder + '/chat.jsonl', 'w')\n"
       "for r in records:\n"
       "    m = [{'role': role[t['from']], 'content': t['value']} for t in r['conversations']]\n"
       "    out.write(json.dumps({'messages': m, 'images': names(r)}) + '\\n')\n"},
      {"held.json",
       "for r in records:\n"
       "    r['image'] = ['data:image/png;base64,' + base64.b64encode(picture(n)).decode() "
       "for n in names(r)]\n"
       "json.dump(records, open(folder + '/held.json', 'w'))\n"},
      {"shard.tar",
       "tar = tarfile.open(folder + '/shard.tar', 'w')\n"
       "def add(name, data):\n"
       "    info = tarfile.TarInfo(name)\n"
       "    info.size = len(data)\n"
       "    tar.addfile(info, io.BytesIO(data))\n"
       "for i, r in enumerate(records):\n"
       "    for k, n in enumerate(names(r)): add(f'{i:04}.{k}.png', picture(n))\n"
       "    add(f'{i:04}.json', json.dumps(r).encode())\n"
       "tar.close()\n"},
      {"rows.parquet",  // pictures in the rows, as the datasets library writes them
       "import pyarrow, pyarrow.parquet\n"
       "rows = [{'id': r['id'], 'note': 3.5, 'conversations': r['conversations'], 'images': "
       "[{'bytes': picture(n), 'path': n} for n in names(r)]} for r in records]\n"
       "pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder + '/rows.parquet', "
       "row_group_size=3)\n"},
      {"paths.parquet",  // pictures in files, a whole column of one picture's bytes, dictionaries
       "import pyarrow, pyarrow.parquet\n"
       "role = {'human': 'user', 'gpt': 'assistant'}\n"
       "rows = [{'messages': [{'role': role[t['from']], 'content': t['value']} for t in "
       "r['conversations']], 'images': names(r)} for r in records]\n"
       "pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder + '/paths.parquet', "
       "row_group_size=100, compression='zstd')\n"}};
  for (const auto& [name, script] : forms) {
    INFO(name);
    const LoadedPack loaded = LoadedFrom(fixture, name, script);
    CHECK(loaded.targets == expected.targets);
    CHECK(Ints(loaded.batch.input_ids) == Ints(expected.batch.input_ids));
    CHECK(Ints(loaded.batch.targets) == Ints(expected.batch.targets));
    CHECK(Bytes(loaded.batch.pixel_values) == Bytes(expected.batch.pixel_values));
  }
}

TEST_CASE("Parquet that is damaged, empty or named otherwise is refused", "[data][cpu]") {
  const TemporaryFolder folder;
  const auto refusal = [](const std::string& path) {
    try {
      AnnotationFile file(path);
      file.Read(0, file.file().bytes, 1 << 20);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  RunPython(
      "import pyarrow, pyarrow.parquet\n"
      "pairs = pyarrow.array([['0.png', '1.png']] * 2, pyarrow.list_(pyarrow.string(), 2))\n"
      "table = pyarrow.table({'query': ['a', 'b'], 'response': ['c', None], 'images': pairs})\n"
      "pyarrow.parquet.write_table(table, '" +
      (folder / "a.parquet") + "')\npyarrow.parquet.write_table(table[:0], '" +
      (folder / "empty.parquet") + "')\n");
  CHECK(refusal(folder / "a.parquet").empty());
  CHECK_THAT(refusal(folder / "empty.parquet"), Catch::Contains("has no rows"));
  const std::string whole = ReadWholeFile(folder / "a.parquet");
  for (const size_t length : {size_t{4}, whole.size() / 2, whole.size() - 1}) {
    INFO(length);
    CHECK_THAT(refusal(folder.Write("cut.parquet", whole.substr(0, length))),
               Catch::Contains("no Parquet file that can be read"));
  }
  CHECK_THAT(refusal(folder.Write("a.jsonl", whole)), Catch::Contains("must end in .parquet"));
  const AnnotationFile file(folder / "a.parquet");
  const auto reader = file.Read(0, file.file().bytes, 1 << 20);
  Line line;
  REQUIRE(reader->Next(line));
  CHECK(ParseParquetRecord(line.text).record.images == std::vector<std::string>{"0.png", "1.png"});
  CHECK(file.Record(line.offset, line.bytes, 1 << 20) == line.text);
  REQUIRE(reader->Next(line));
  CHECK(line.number == 2);
  CHECK_THAT(ParseParquetRecord(line.text).reason, Catch::Contains("'response' is no text"));
  CHECK_FALSE(reader->Next(line));
  // Half of the bytes hold the first row alone.
  const auto half = file.Read(1, file.file().bytes, 1 << 20);
  REQUIRE(half->Next(line));
  CHECK(line.number == 2);
}

TEST_CASE("a padded pack gives each sample the tokens of the longest", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(8), LossWeight::kSquare);
  const std::vector<int64_t> samples = {2, 0, 1};
  const Pack tight = fixture.PackOf(samples);
  const Pack padded = MakePack(*fixture.index, samples, fixture.loss, /*pad=*/true);
  CHECK(padded.tokens == tight.tokens);
  REQUIRE(padded.row_tokens == 3 * padded.longest);
  REQUIRE(padded.row_tokens > padded.tokens);
  CHECK(padded.load().token_pairs == 3 * CausalPairs(padded.longest));
  CHECK(padded.useful().token_pairs == tight.load().token_pairs);
  CHECK(tight.load().tokens == tight.tokens);
  const LoadedPack expected = fixture.dataset->Load(tight), found = fixture.dataset->Load(padded);
  CHECK(padded.load().targets == found.batch.targets.ne(kNoTarget).sum().item<int64_t>());
  CHECK(found.targets == expected.targets);
  CHECK(found.weight == expected.weight);
  CHECK(Bytes(found.batch.pixel_values) == Bytes(expected.batch.pixel_values));
  REQUIRE(found.batch.cu_seqlens.size() == 4);
  std::vector<int64_t> image_positions;
  const auto part = [](const at::Tensor& all, int64_t begin, int64_t count) {
    return all.narrow(0, begin, count);
  };
  for (size_t s = 0; s < 3; ++s) {
    const int64_t from = expected.batch.cu_seqlens[s], to = found.batch.cu_seqlens[s];
    const int64_t tokens = expected.batch.cu_seqlens[s + 1] - from;
    CHECK(found.batch.cu_seqlens[s + 1] - to == padded.longest);
    for (auto member : {&MicroBatch::input_ids, &MicroBatch::targets, &MicroBatch::position_ids,
                        &MicroBatch::target_weights}) {
      CHECK(
          part(found.batch.*member, to, tokens).equal(part(expected.batch.*member, from, tokens)));
    }
    const at::Tensor targets = part(found.batch.targets, to + tokens, padded.longest - tokens);
    CHECK(targets.eq(-100).all().item<bool>());
    for (const int64_t at : Ints(expected.batch.image_positions)) {
      if (at >= from && at < from + tokens) image_positions.push_back(at - from + to);
    }
  }
  CHECK(Ints(found.batch.image_positions) == image_positions);
}

TEST_CASE("tiles of all pictures stand in the order of their placeholders", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(4));
  const Pack pack = fixture.PackOf({1, 2});  // wide; then one, tall
  const MicroBatch batch = fixture.dataset->Load(pack).batch;
  REQUIRE(batch.tiles() == 7);
  const ImageProcessor processor(DataFixture::images(), fixture.data.config.tiles);
  const auto tiles_of = [&](const std::string& name, int64_t pictures) {
    const ImageLimits limits;
    const auto image =
        DecodeImage(ReadImageFile(fixture.data.folder / ("images/" + name), limits), limits);
    return Bytes(processor.Make(image, pictures));
  };
  std::vector<uint8_t> expected;
  for (const auto& part :
       {tiles_of("wide.png", 1), tiles_of("one.png", 2), tiles_of("tall.png", 2)}) {
    expected.insert(expected.end(), part.begin(), part.end());
  }
  CHECK(Bytes(batch.pixel_values) == expected);
}

TEST_CASE("a text-only pack has no tiles, an empty one no tokens", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(4));
  CHECK(fixture.dataset->Load(fixture.PackOf({0})).batch.tiles() == 0);
  const LoadedPack empty = fixture.dataset->Load(Pack());
  CHECK(empty.batch.tokens() == 0);
  CHECK(empty.batch.cu_seqlens == std::vector<int64_t>{0});
}

TEST_CASE("long samples are cut, and the last target with them", "[data][cpu]") {
  LoaderFixture fixture({RecordLine("a", "\"one.png\"", "<image>", std::string(300, 'q'))});
  const Pack pack = fixture.PackOf({0});
  REQUIRE(pack.tokens == 128);
  const LoadedPack loaded = fixture.dataset->Load(pack);
  CHECK(loaded.bad.empty());
  const auto targets = Ints(loaded.batch.targets);
  CHECK(targets[126] != -100);
  CHECK(targets[127] == -100);
  int64_t count = 0;
  for (const int64_t target : targets) count += target != -100 ? 1 : 0;
  CHECK(count == pack.trained);
}

TEST_CASE("target weights follow the loss", "[data][cpu]") {
  for (const LossWeight kind : {LossWeight::kSample, LossWeight::kSquare}) {
    LoaderFixture fixture(DataFixture::MixedLines(4), kind);
    const Pack pack = fixture.PackOf({0, 1});
    const LoadedPack loaded = fixture.dataset->Load(pack);
    const auto weights = Floats(loaded.batch.target_weights);
    const auto targets = Ints(loaded.batch.targets);
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const bool first = static_cast<int64_t>(i) < loaded.batch.cu_seqlens[1];
      const double x = (*fixture.index)[first ? 0 : 1].trained;
      const double expected = kind == LossWeight::kSample ? 1 / x : 1 / std::sqrt(x);
      CHECK(weights[i] == Approx(targets[i] == -100 ? 0 : expected));
      sum += weights[i];
    }
    CHECK(sum == Approx(pack.weight));
    CHECK(loaded.weight == Approx(pack.weight));
  }
}

// Loads sample 1 (a picture of three tiles) between two good ones after `damage`.
LoadedPack LoadDamaged(const std::function<void(DataFixture&)>& damage) {
  LoaderFixture fixture(DataFixture::MixedLines(8));
  const Pack pack = fixture.PackOf({0, 1, 2});
  const auto good = fixture.dataset->Load(pack);
  damage(fixture.data);
  LoadedPack loaded = fixture.dataset->Load(pack);
  CHECK(loaded.batch.cu_seqlens == good.batch.cu_seqlens);
  CHECK(loaded.batch.pixel_values.sizes() == good.batch.pixel_values.sizes());
  CHECK(loaded.batch.image_positions.sizes() == good.batch.image_positions.sizes());
  CHECK(Ints(loaded.batch.position_ids) == Ints(good.batch.position_ids));
  CHECK(loaded.batch.planned_targets == pack.trained);
  CHECK(loaded.targets == pack.trained - (*fixture.index)[1].trained);
  // The neighbours are as they were.
  const auto targets = Ints(loaded.batch.targets), before = Ints(good.batch.targets);
  const auto& borders = good.batch.cu_seqlens;
  for (int64_t i = 0; i < borders[3]; ++i) {
    const bool bad = i >= borders[1] && i < borders[2];
    CHECK(targets[static_cast<size_t>(i)] == (bad ? -100 : before[static_cast<size_t>(i)]));
  }
  const auto pixels = Bytes(loaded.batch.pixel_values), whole = Bytes(good.batch.pixel_values);
  for (size_t i = 0; i < pixels.size(); ++i)
    REQUIRE(pixels[i] == (i < 3 * 3 * 14 * 14 ? 0 : whole[i]));
  REQUIRE(loaded.bad.size() == 1);
  CHECK(loaded.bad[0].sample == 1);
  CHECK(loaded.bad[0].line == 2);
  CHECK(loaded.bad[0].file.ends_with("train.jsonl"));
  return loaded;
}

TEST_CASE("a sample that fails when it is loaded keeps its shape and teaches nothing",
          "[data][cpu]") {
  const std::string png = TinyPng(56, 28, 50);
  const auto cut = LoadDamaged([&](DataFixture& data) {
    data.folder.Write("images/wide.png", png.substr(0, png.size() / 2));
  });
  CHECK(cut.bad[0].id == "r1");
  CHECK(cut.bad[0].reason.starts_with("wide.png: "));
  const auto gone = LoadDamaged(
      [](DataFixture& data) { std::filesystem::remove(data.folder / "images/wide.png"); });
  CHECK(gone.bad[0].reason.find("no such file") != std::string::npos);
  const auto resized =
      LoadDamaged([](DataFixture& data) { data.folder.Write("images/wide.png", TinyPng(14, 14)); });
  CHECK(resized.bad[0].reason.find("changed since") != std::string::npos);
  CHECK(resized.bad[0].reason.ends_with("`equipoise data CONFIG index` measures anew"));
  const auto outside = LoadDamaged([](DataFixture& data) {
    std::filesystem::rename(data.folder / "images/wide.png", data.folder / "wide.png");
    std::filesystem::create_symlink("../wide.png", data.folder / "images/wide.png");
  });
  CHECK(outside.bad[0].reason.find("leaves the image folder") != std::string::npos);
  const auto rewritten = LoadDamaged([](DataFixture& data) {
    std::string text = ReadWholeFile(data.folder / "train.jsonl");
    text[text.find("\"r1\"") + 1] = '\xff';
    data.folder.Write("train.jsonl", text);
  });
  CHECK(rewritten.bad[0].reason.find("record") != std::string::npos);
}

TEST_CASE("pictures of any resolution come with their sizes, and a bad sample's with its load",
          "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(8));
  CostIndexOptions options = data.options();
  options.images.kind = ImageSpec::Kind::kAnyRes;
  options.images.resolutions = {{1, 2}, {2, 1}};
  const CostIndex index = data.Open(options);
  SampleOptions samples = data.sample_options();
  samples.images = options.images;
  const Dataset dataset(data.config.train, samples, &index, &data.chat_template);
  const std::vector<int64_t> some = {0, 1, 2};
  const Pack pack = MakePack(index, some, LossWeight::kToken);
  CHECK(pack.pictures.patches == 3 * 3 * 5);
  // 28 x 56 fills its resolution, 14 x 14 the half of one, 28 x 14 a whole one.
  CHECK(pack.pictures.image_tokens == (4 + 2 * 5) + (4 + 2 * 3) + (4 + 4 * 3));
  const LoadedPack good = dataset.Load(pack);
  CHECK(good.bad.empty());
  CHECK(Ints(good.batch.image_grids) == std::vector<int64_t>{28, 56, 14, 14, 28, 14});
  CHECK(good.batch.position_ids.dim() == 1);
  CHECK(good.batch.tiles() == 9);
  CHECK(PicturesOf(good.batch, options.images) == pack.pictures);
  const LoadedPack without = dataset.Load(pack, /*pictures=*/false);
  CHECK(without.batch.image_grids.equal(good.batch.image_grids));

  for (const std::string& png : {std::string("no picture"), TinyPng(30, 14)}) {
    data.folder.Write("images/tall.png", png);  // of sample 2, beside one that is as it was
    const LoadedPack loaded = dataset.Load(pack);
    CHECK(loaded.bad.size() == 1);
    CHECK(Ints(loaded.batch.image_grids) == std::vector<int64_t>{28, 56, -6, -26});
    CHECK(PicturesOf(loaded.batch, options.images) == pack.pictures);
    CHECK(loaded.batch.pixel_values.sizes() == good.batch.pixel_values.sizes());
    CHECK(loaded.batch.image_positions.sizes() == good.batch.image_positions.sizes());
  }
}

TEST_CASE("a pack without its pictures has the same row and no tiles", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(4));
  const Pack pack = fixture.PackOf({0, 1, 2, 3});
  REQUIRE(pack.pictures.patches > 0);
  const MicroBatch whole = fixture.dataset->Load(pack).batch;
  const std::string png = TinyPng(56, 28);  // its second half is never read
  fixture.data.folder.Write("images/wide.png", png.substr(0, png.size() / 2));
  REQUIRE(fixture.dataset->Load(pack).bad.size() == 1);
  const LoadedPack row = fixture.dataset->Load(pack, /*pictures=*/false);
  CHECK(row.bad.empty());
  CHECK(row.targets == pack.trained);
  CHECK(row.batch.tiles() == 0);
  CHECK(row.batch.cu_seqlens == whole.cu_seqlens);
  CHECK(Ints(row.batch.input_ids) == Ints(whole.input_ids));
  CHECK(Ints(row.batch.targets) == Ints(whole.targets));
  CHECK(Ints(row.batch.position_ids) == Ints(whole.position_ids));
  CHECK(Ints(row.batch.image_positions) == Ints(whole.image_positions));
}

TEST_CASE("loaded packs come in order with any number of threads", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(40));
  for (const int64_t threads : {1, 2, 3, 4}) {
    std::atomic<int64_t> next{0};
    std::atomic<int> inside{0}, most_inside{0};
    PrefetchLoader loader(
        &*fixture.dataset,
        [&] {
          most_inside = std::max<int>(most_inside, ++inside);
          LoadRequest request{fixture.PackOf({next % 40})};
          ++next;
          --inside;
          return request;
        },
        threads, 3);
    for (int64_t i = 0; i < 60; ++i) {
      REQUIRE(loader.Next().batch.samples == std::vector<int64_t>{i % 40});
      CHECK(next <= i + 1 + 3);  // bounded
    }
    CHECK(most_inside == 1);
  }
}

TEST_CASE("a loader decodes the pictures that are asked for", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(8));
  int64_t next = 0;
  PrefetchLoader loader(
      &*fixture.dataset,
      [&] {
        const int64_t number = next++;
        return LoadRequest{fixture.PackOf({1}), /*pictures=*/number % 2 == 0};
      },
      2, 4);
  for (int64_t i = 0; i < 6; ++i) {
    const MicroBatch batch = loader.Next().batch;
    CHECK(batch.pixel_values.defined() == (i % 2 == 0));
  }
}

TEST_CASE("a loader goes away whatever its threads are doing", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(8));
  for (int taken = 0; taken < 3; ++taken) {
    PrefetchLoader loader(
        &*fixture.dataset,
        [&] {
          return LoadRequest{fixture.PackOf({0, 1, 2})};
        },
        3, 2);
    for (int i = 0; i < taken; ++i) loader.Next();
  }
}

TEST_CASE("an exception comes in its place and stays", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(8));
  int64_t next = 0;
  PrefetchLoader loader(
      &*fixture.dataset,
      [&] {
        if (next == 5) throw std::runtime_error("no more");
        return LoadRequest{fixture.PackOf({next++})};
      },
      2, 4);
  for (int64_t i = 0; i < 5; ++i) CHECK(loader.Next().batch.samples == std::vector<int64_t>{i});
  CHECK_THROWS_WITH(loader.Next(), "no more");
  CHECK_THROWS_WITH(loader.Next(), "no more");
}

TEST_CASE("the check decodes pictures", "[data][cpu]") {
  LoaderFixture fixture(DataFixture::MixedLines(4));
  CHECK(fixture.dataset->Check(1).reason.empty());
  const std::string png = TinyPng(56, 28);
  fixture.data.folder.Write("images/wide.png", png.substr(0, png.size() / 2));
  const ScannedSample damaged = fixture.dataset->Check(1);
  CHECK(damaged.defect == Defect::kImageDamaged);
  CHECK(damaged.reason.starts_with("wide.png: "));
  CHECK(fixture.dataset->Scan(1).defect == Defect::kNone);
}

}  // namespace
}  // namespace equipoise
