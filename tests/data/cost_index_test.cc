#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>

#include "configs/base/error.h"
#include "data/index/cost_index_file.h"
#include "tests/data/data_fixture.h"
#include "tests/skip_case.h"

namespace equipoise {
namespace {

// Opens the index in `folder` by `slices` ranks as threads; gives the file's bytes. `apart`: the
// slices behind the first would choose a folder of their own.
std::string BuiltIn(const std::string& folder, const DataFixture& data, int slices, int64_t threads,
                    bool apart = false) {
  std::barrier barrier(slices);
  std::atomic<bool> any{false};
  std::vector<std::string> parts(static_cast<size_t>(slices));
  std::vector<std::string> paths(static_cast<size_t>(slices));
  std::string chosen;
  std::vector<std::jthread> ranks;
  ranks.reserve(static_cast<size_t>(slices));
  for (int slice = 0; slice < slices; ++slice) {
    ranks.emplace_back([&, slice] {
      DataConfig config = data.config;
      config.cache = apart && slice > 0 ? folder + "-" + std::to_string(slice) : folder;
      config.threads = threads;
      CostIndexOptions options = data.options();
      options.slice = slice;
      options.slices = slices;
      options.any_rank = [&](bool mine) {
        if (mine) any = true;
        barrier.arrive_and_wait();
        const bool result = any;
        barrier.arrive_and_wait();
        any = false;
        barrier.arrive_and_wait();
        return result;
      };
      options.on_all = [all = options.any_rank](const std::function<void()>& work) {
        std::exception_ptr failure;
        try {
          work();
        } catch (...) {
          failure = std::current_exception();
        }
        if (!all(failure != nullptr)) return;
        if (failure) std::rethrow_exception(failure);
        throw DataError("another slice");
      };
      options.of_first = [&](const std::string& mine) {
        if (slice == 0) chosen = mine;
        barrier.arrive_and_wait();
        return chosen;
      };
      options.collect = [&](const std::string& mine) {
        parts[static_cast<size_t>(slice)] = mine;
        barrier.arrive_and_wait();
        return slice == 0 ? parts : std::vector<std::string>();
      };
      const auto opened = OpenCostIndex(config.train, config, data.chat_template, options);
      paths[static_cast<size_t>(slice)] = opened.index.path();
    });
  }
  ranks.clear();
  for (const std::string& path : paths) {
    if (path != paths[0]) return "other path";
  }
  return ReadWholeFile(paths[0]);
}

std::string BuiltBy(const DataFixture& data, int slices, int64_t threads) {
  return BuiltIn(data.folder / ("cache-" + std::to_string(slices) + "-" + std::to_string(threads)),
                 data, slices, threads);
}

TEST_CASE("costs are those of the encoded records", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(8));
  const CostIndex index = data.Open();
  REQUIRE(index.size() == 8);
  CHECK(index.CountDefects()[0] == 8);
  const SampleScanner scanner(data.config.train, data.sample_options(), &data.chat_template);
  const std::string text = ReadWholeFile(data.config.train[0].annotations);
  const int tiles[] = {0, 3, 4, 1};  // with thumbnails
  for (int64_t i = 0; i < index.size(); ++i) {
    INFO(i);
    const ScannedSample sample = scanner.Scan(0, text.substr(index[i].offset, index[i].bytes));
    REQUIRE(sample.reason.empty());
    CHECK(index[i].tokens == sample.encoded.ids.size());
    CHECK(index[i].trained == sample.trained);
    CHECK(index[i].pictures() == sample.all_pictures());
    CHECK(index[i].images == sample.pictures.size());
    CHECK(index[i].line == i + 1);
    CHECK(index[i].pictures() == DataFixture::images().LoadOfTiles(tiles[i % 4]));
  }
}

TEST_CASE("the index is bitwise the same for any number of slices and threads", "[data][cpu]") {
  DataFixture data;
  auto lines = DataFixture::MixedLines(400);
  lines[3] = "";
  lines[7] = "broken";
  for (int i = 0; i < 50; ++i)
    lines.push_back(RecordLine("long", "", std::string(20'000, 'q'), "a"));
  data.WriteRecords(lines);
  data.folder.Write("second.jsonl",
                    RecordLine("s", "", "Q", "A") + "\n\n" + RecordLine("t", "", "Q", "AB"));
  data.config.train.push_back({data.folder / "second.jsonl", data.folder / "images", 1.0});
  data.config.max_bad_share = 1;
  const std::string alone = BuiltBy(data, 1, 1);
  REQUIRE(alone.size() == 56 + 56 * 451);
  CHECK(BuiltBy(data, 2, 1) == alone);
  CHECK(BuiltBy(data, 3, 1) == alone);
  CHECK(BuiltBy(data, 7, 2) == alone);
  CHECK(BuiltBy(data, 1, 3) == alone);
}

TEST_CASE("an array of the same records has the costs of its lines", "[data][cpu]") {
  DataFixture data;
  auto lines = DataFixture::MixedLines(400);
  for (int i = 0; i < 50; ++i)
    lines.push_back(RecordLine("long", "", std::string(20'000, 'q'), "a"));
  data.WriteRecords(lines);
  data.config.max_bad_share = 1;
  const auto costs = [&] {
    std::vector<SampleCost> all;
    const CostIndex index = data.Open();
    for (int64_t i = 0; i < index.size(); ++i) all.push_back(index[i]);
    return all;
  };
  const std::vector<SampleCost> of_lines = costs();
  std::string array = "[\n";
  for (const std::string& line : lines) array += (array.size() > 2 ? ",\n" : "") + line;
  data.folder.Write("train.jsonl", array + "]");
  const std::vector<SampleCost> of_array = costs();
  REQUIRE(of_array.size() == of_lines.size());
  for (size_t i = 0; i < of_lines.size(); ++i) {
    INFO(i);
    CHECK(of_array[i].tokens == of_lines[i].tokens);
    CHECK(of_array[i].trained == of_lines[i].trained);
    CHECK(of_array[i].patches == of_lines[i].patches);
    CHECK(of_array[i].bytes == of_lines[i].bytes);
    CHECK(of_array[i].line == i + 1);
    CHECK(of_array[i].defect == of_lines[i].defect);
  }
  const std::string alone = BuiltBy(data, 1, 1);
  CHECK(BuiltBy(data, 3, 1) == alone);
  CHECK(BuiltBy(data, 5, 3) == alone);
}

TEST_CASE("the first rank chooses the folder of the index for all", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(40));
  const std::string alone = BuiltBy(data, 1, 1);
  const std::string folder = data.folder / "first";
  CHECK(BuiltIn(folder, data, 3, 1, /*apart=*/true) == alone);
  int indexes = 0;
  for (const char* name : {"first", "first-1", "first-2"}) {
    if (!std::filesystem::exists(data.folder / name)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(data.folder / name))
      indexes += entry.path().filename().string().starts_with("costs-") ? 1 : 0;
  }
  CHECK(indexes == 1);
  CHECK(BuiltIn(folder, data, 3, 1, /*apart=*/true) == alone);  // and finds it for all
}

TEST_CASE("jobs that build the same index at once do not disturb each other", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(400));
  const std::string alone = BuiltBy(data, 1, 1);
  for (int round = 0; round < 20; ++round) {
    INFO(round);
    const std::string folder = data.folder / ("shared-" + std::to_string(round));
    std::vector<std::string> built(3);
    {
      std::vector<std::jthread> jobs;
      jobs.reserve(built.size());
      for (std::string& bytes : built)
        jobs.emplace_back([&] { bytes = BuiltIn(folder, data, 3, 1); });
    }
    for (const std::string& bytes : built) CHECK(bytes == alone);
    // Nothing but the index and the stamp of the content remains.
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files += entry.path().filename().string().starts_with("content-") ? 0 : 1;
    CHECK(files == 1);
  }
}

TEST_CASE("an index is built once and again when what it was made from changes", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(8));
  const auto built = [&] {
    return OpenCostIndex(data.config.train, data.config, data.chat_template, data.options()).built;
  };
  CHECK(built());
  CHECK_FALSE(built());
  const auto change = [&](const char* what, const std::function<void(DataConfig&)>& make) {
    INFO(what);
    const DataConfig before = data.config;
    make(data.config);
    CHECK(built());
    CHECK_FALSE(built());
    data.config = before;
    CHECK_FALSE(built());
  };
  change("max_tokens", [](DataConfig& config) { config.max_tokens = 100; });
  change("tiles", [](DataConfig& config) { config.tiles.max = 2; });
  change("limits", [](DataConfig& config) { config.limits.image_pixels = 10'000; });
  data.folder.Write("other/one.png", TinyPng(14, 14));
  change("images", [&](DataConfig& config) {
    config.train[0].images = data.folder / "other";
    config.max_bad_share = 1;
  });
  auto options = data.options();
  options.rebuild = true;
  CHECK(OpenCostIndex(data.config.train, data.config, data.chat_template, options).built);
  data.WriteRecords(DataFixture::MixedLines(9));
  CHECK(built());
  const ChatTemplate other("chatml", "Be brief.", &data.tokenizer);
  CHECK(OpenCostIndex(data.config.train, data.config, other, data.options()).built);
}

// Name and hash are those that the last program with version 1 gave the same records.
TEST_CASE("an index of an older version is built anew, and a line says so", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(8));
  const std::string older = "costs-606ea6568b944efa.idx";
  const std::string header = std::string("EQCOST\r\n\1\0\0\0", 12) + std::string(36, 'x');
  data.folder.Write(".equipoise/" + older, header);
  auto options = data.options();
  std::vector<std::string> notices;
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  const auto open = [&] {
    return OpenCostIndex(data.config.train, data.config, data.chat_template, options);
  };
  // A search says so too, and builds nothing.
  CHECK_FALSE(FindCostIndex(data.config.train, data.config, data.chat_template, options));
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].find(older + ": a cost index in version 1 of its format") != std::string::npos);
  const OpenedCostIndex opened = open();
  CHECK(opened.built);
  CHECK(opened.index.size() == 8);
  REQUIRE(notices.size() == 2);
  CHECK(notices[1] == notices[0]);
  CHECK(notices[0].find("training builds one in version 9") != std::string::npos);
  // With one in the newest version nothing is said any more.
  CHECK_FALSE(open().built);
  options.rebuild = true;
  CHECK(open().built);
  CHECK(FindCostIndex(data.config.train, data.config, data.chat_template, options));
  CHECK(notices.size() == 2);
  CHECK(ReadWholeFile(data.folder / (".equipoise/" + older)) == header);  // not touched
  // Checkpoints of that program are gone on with.
  CHECK(opened.index.hash() == 0xb265333499bc2f92);
}

TEST_CASE("a sample of any resolution fits in the index", "[data][cpu]") {
  const TemporaryFolder folder;
  SampleCost large;
  large.image_tokens = 16384;
  large.patches = 4 * large.image_tokens;
  large.patch_pairs = uint64_t{large.patches} * large.patches;
  large.images = 100'000;
  WriteIndexFile(folder / "index", /*key=*/1, /*content=*/2, {large});
  const auto index = CostIndex::Map(folder / "index", 1);
  REQUIRE(index);
  CHECK(index->hash() == 2);
  const PictureLoad pictures = (*index)[0].pictures();
  CHECK(pictures.patches == 65536);
  CHECK(pictures.patch_pairs == 65536.0 * 65536);
  CHECK(pictures.image_tokens == 16384);
  CHECK((*index)[0].images == 100'000);
}

TEST_CASE("same size and other content is noticed", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords({RecordLine("a", "", "Q", "yes"), RecordLine("b", "", "Q", "no")});
  const uint64_t before = data.Open().hash();
  data.WriteRecords({RecordLine("a", "", "Qxx", "y"), RecordLine("b", "", "Q", "no")});
  CHECK(data.Open().hash() != before);
}

TEST_CASE("a damaged index is built again", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(20));
  const std::string path = data.Open().path();
  const std::string good = ReadWholeFile(path);
  const auto flipped = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  for (const std::string& bad :
       {std::string(), good.substr(0, 20), good.substr(0, good.size() - 56),
        good.substr(0, good.size() - 1), good + "x", flipped(0), flipped(8), flipped(24),
        flipped(40), flipped(48), flipped(60), flipped(good.size() - 1)}) {
    std::ofstream(path, std::ios::binary) << bad;
    const auto opened =
        OpenCostIndex(data.config.train, data.config, data.chat_template, data.options());
    CHECK(opened.built);
    CHECK(ReadWholeFile(path) == good);
  }
}

TEST_CASE("each defect that record and head show is found while indexing", "[data][cpu]") {
  DataFixture data;
  data.config.limits.image_pixels = 100 * 100;
  data.config.limits.image_bytes = 50'000;
  data.config.limits.record_bytes = 3'000;
  const std::string png = TinyPng(56, 28);
  data.folder.Write("images/large.png", TinyPng(101, 100));
  data.folder.Write("images/heavy.png", png + std::string(50'000, 'x'));
  data.folder.Write("images/empty.png", "");
  data.folder.Write("images/cut.png", png.substr(0, 20));
  data.folder.Write("images/page.jpg", "<html><body>404</body></html>");
  data.folder.Write("images/webp.webp",
                    std::string("RIFF\x20\0\0\0WEBPVP8 ", 16) + std::string(24, 'x'));
  data.folder.Write("secret.png", png);
  const auto with = [](const std::string& image) {
    return RecordLine("x", "\"" + image + "\"", "Q", "A");
  };
  std::string many = "[\"one.png\"";
  for (int i = 1; i < 40; ++i) many += ",\"one.png\"";
  std::string marks;
  for (int i = 0; i < 40; ++i) marks += "<image>";
  struct Case {
    std::string line;
    Defect defect;
  };
  const std::vector<Case> cases = {
      {RecordLine("good", "\"one.png\"", "Q", "A"), Defect::kNone},
      {"{\"id\": ", Defect::kBadJson},
      {RecordLine("x", "5", "Q", "A"), Defect::kBadField},
      {RecordLine("x", "\"one.png\"", "<image><image>", "A"), Defect::kPlaceholders},
      {R"({"conversations":[]})", Defect::kNoConversation},
      {with("missing.png"), Defect::kImageMissing},
      {with("../secret.png"), Defect::kImageOutside},
      {with("/etc/passwd"), Defect::kImageOutside},
      {with("\\u001b[2J\\n.png"), Defect::kImageMissing},
      {with("."), Defect::kImageUnreadable},
      {with("empty.png"), Defect::kImageUnreadable},
      {with("cut.png"), Defect::kImageUnreadable},
      {with("page.jpg"), Defect::kImageUnreadable},
      {with("webp.webp"), Defect::kImageUnreadable},
      {with("large.png"), Defect::kImageTooLarge},
      {with("heavy.png"), Defect::kImageTooLarge},
      {RecordLine("x", many + "]", marks, "A"), Defect::kTooManyTokens},
      {RecordLine("x", "\"one.png\"", std::string(200, 'q') + "<image>", "A"),
       Defect::kTooManyTokens},
      {RecordLine("x", "", std::string(200, 'q'), "A"), Defect::kNothingTrained},
      {RecordLine("x", "", "Q", " "), Defect::kNothingTrained},
      {RecordLine("x", "", std::string(4000, 'q'), "A"), Defect::kLineTooLong},
      {RecordLine("x", "", "Q", std::string(2000, 'q')), Defect::kNone},
  };
  std::vector<std::string> lines;
  for (const Case& each : cases) lines.push_back(each.line);
  data.WriteRecords(lines);
  CHECK(MessageOf([&] { data.Open(); }) != "");
  auto options = data.options();
  options.enforce_bad_share = false;
  const CostIndex index = data.Open(options);
  REQUIRE(index.size() == static_cast<int64_t>(cases.size()));
  for (size_t i = 0; i < cases.size(); ++i) {
    const SampleCost& cost = index[static_cast<int64_t>(i)];
    INFO(cases[i].line.substr(0, 200));
    CHECK(DefectName(cost.defect) == DefectName(cases[i].defect));
    CHECK(cost.line == i + 1);
    if (cost.defect != Defect::kNone) CHECK(cost.tokens + cost.patches + cost.trained == 0);
  }
  CHECK(index[21].tokens == 128);  // cut
  options.images = {};
  CHECK(data.Open(options)[0].defect == Defect::kNoVision);
}

TEST_CASE("records of more than max_tokens are dropped where the setting says so, and not bad",
          "[data][cpu]") {
  DataFixture data;
  std::string many = "[\"one.png\"", marks;
  for (int i = 1; i < 40; ++i) many += ",\"one.png\"";
  for (int i = 0; i < 40; ++i) marks += "<image>";
  data.WriteRecords({RecordLine("fits", "\"one.png\"", "Q", "A"),
                     RecordLine("pictures", many + "]", marks, "A"),
                     RecordLine("late", "\"one.png\"", std::string(200, 'q') + "<image>", "A"),
                     RecordLine("question", "", std::string(200, 'q'), "A"),
                     RecordLine("answer", "", "Q", std::string(2000, 'q'))});
  const auto defects = [&data] {
    auto options = data.options();
    options.enforce_bad_share = false;
    const CostIndex index = data.Open(options);
    std::vector<std::string_view> names;
    for (int64_t i = 0; i < index.size(); ++i) names.push_back(DefectName(index[i].defect));
    return names;
  };
  using Names = std::vector<std::string_view>;
  CHECK(defects() ==
        Names{"none", "too_many_tokens", "too_many_tokens", "nothing_trained", "none"});
  data.config.too_long = "drop";
  CHECK(defects() == Names{"none", "too_long", "too_long", "too_long", "too_long"});
  const CostIndex index = data.Open();  // within data.max_bad_share
  CHECK(index.CountBad() == 0);
  CHECK(index.DescribeDefects().empty());
  data.config.max_tokens = 1 << 16;
  CHECK(data.Open().CountDefects()[0] == 5);
}

TEST_CASE("a first record of any length is data like any other", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords({RecordLine("long", "", std::string((1 << 20) + 100, 'q'), "A"),
                     RecordLine("good", "", "Q", "A")});
  auto options = data.options();
  options.enforce_bad_share = false;
  const CostIndex index = data.Open(options);
  REQUIRE(index.size() == 2);
  CHECK(index[0].defect == Defect::kNothingTrained);  // cut before its answer
  CHECK(index[1].defect == Defect::kNone);
}

TEST_CASE("missing, empty and wrong files are the user's errors", "[data][cpu]") {
  DataFixture data;
  const auto open = [&] { data.Open(); };
  CHECK(MessageOf(open).find("train.jsonl: cannot be opened") != std::string::npos);
  data.WriteRecords({"", " "});
  CHECK(MessageOf(open).find("holds no records") != std::string::npos);
  data.folder.Write("train.jsonl", " [\n{},\n]\n");
  CHECK(MessageOf(open).find("train.jsonl:3:1: a comma behind record 1, the last one; remove it") !=
        std::string::npos);
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"\x1f\x8b\x08", "gzip"},
      {"PAR1\x15", "Parquet"},
      {"{\n \"coco\": {\"root\": \"coco/\", \"annotation\": \"coco.jsonl\"}\n}\n",
       "meta file of InternVL"},
      {"{\n \"id\": 1\n}\n", "one JSON object over several lines"},
      {"{\n \"id\": 1\n}\n{\n \"id\": 2\n}\n", "has records over several lines"}};
  for (const auto& [bytes, kind] : kinds) {
    data.folder.Write("train.jsonl", bytes);
    INFO(kind);
    CHECK(MessageOf(open).find(kind) != std::string::npos);
  }
  data.WriteRecords(DataFixture::MixedLines(4));
  data.config.train[0].images = data.folder / "nowhere";
  CHECK(MessageOf(open).find("nowhere: cannot open the image folder") != std::string::npos);
  data.config.train[0].listed_in = "meta.json: coco";
  CHECK(MessageOf(open) ==
        "meta.json: coco: " + (data.folder / "nowhere") +
            ": is no folder of pictures; correct it there, or start where its paths lead");
  data.config.train[0].annotations = "none.jsonl";
  CHECK(MessageOf(open).starts_with("meta.json: coco: none.jsonl: cannot be opened: "));
  data.config.train.clear();
  CHECK_THROWS_AS(open(), ConfigError);
}

TEST_CASE("a folder that cannot be written sends the cache elsewhere, and says so", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords(DataFixture::MixedLines(4));
  data.folder.Write(".equipoise", "a file where the folder would be");
  CHECK(MessageOf([&] { data.Open(); }).find("set data.cache") != std::string::npos);
  auto options = data.options();
  std::string notice;
  options.notice = [&](const std::string& text) { notice = text; };
  options.fallback_folder = data.folder / "run/cache";
  CHECK(data.Open(options).path().starts_with(data.folder / "run/cache/"));
  CHECK(notice.find("run/cache") != std::string::npos);
  CHECK_FALSE(OpenCostIndex(data.config.train, data.config, data.chat_template, options).built);
}

TEST_CASE("the real fixtures are indexed, all of them", "[data][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) {
    return testing::SkipCase("no fixtures");
  }
  DataFixture data;
  const std::string real = std::string(fixtures) + "/real";
  data.config.train = {{real + "/train.jsonl", real + "/images", 1.0}};
  data.config.cache = data.folder / "cache";
  data.config.max_tokens = 1 << 20;
  const CostIndex index = data.Open();
  CHECK(index.size() == 4927);
  const auto counts = index.CountDefects();
  CHECK(counts[0] == 4927);
}

}  // namespace
}  // namespace equipoise
