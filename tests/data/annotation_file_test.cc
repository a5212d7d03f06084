#include "data/records/annotation_file.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "data/records/json_array.h"
#include "data/records/shard.h"
#include "tests/data/temporary_folder.h"
#include "tests/trainer/run_python.h"

namespace equipoise {
namespace {

template <class Work>
std::string MessageOf(const Work& work) {
  try {
    work();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

// Objects with all that a scanner of brackets could fall for.
const std::vector<std::string>& Objects() {
  static const std::vector<std::string> kObjects = {R"({})",
                                                    R"({"a":"}]{[,"})",
                                                    R"({"a":"\"}","b":"\\"})",
                                                    R"({"\\\"": [1, {"x": []}]})",
                                                    "{\n \"a\": [\n  \"line\"\n ]\n}",
                                                    R"({"caf\u00e9":"é"})"};
  return kObjects;
}

TEST_CASE("the elements of an array are found in blocks of any size", "[data][cpu]") {
  std::string text = " \n[ ";
  std::vector<uint64_t> offsets;
  for (const std::string& object : Objects()) {
    if (!offsets.empty()) text += "\n , ";
    offsets.push_back(text.size());
    text += object;
  }
  text += " ]\n \r\n";
  for (size_t block = 1; block <= text.size(); ++block) {
    INFO(block);
    ArrayScanner scanner("a.json");
    for (size_t at = 0; at < text.size(); at += block) scanner.Feed(text.substr(at, block));
    const std::vector<RecordExtent> records = scanner.Finish();
    REQUIRE(records.size() == offsets.size());
    for (size_t i = 0; i < records.size(); ++i) {
      CHECK(records[i].offset == offsets[i]);
      CHECK(text.substr(records[i].offset, records[i].bytes) == Objects()[i]);
    }
  }
}

TEST_CASE("a damaged array is refused with line and column", "[data][cpu]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[1]", "a.json:1:2: '1' in place of the '{'"},
      {"[\n {},\n ]", "a.json:3:2: a comma behind record 1, the last one; remove it"},
      {"[{}\n{}]", "a.json:2:1: '{' behind record 1"},
      {"[{}]\n\n x", "a.json:3:2: 'x' behind the end"},
      {"[\n{\"a\": \"b]}", "ends inside record 1, which begins in line 2"},
      {"[\n{\"a\": {}", "ends inside record 1, which begins in line 2"},
      {"[{}", "a.json:1:4: the file ends before the array's ']'"},
      {"[{\"a\":\"\n\"} x", "a.json:2:4: 'x' behind record 1"},
      {"", "the file ends before"}};
  for (const auto& [text, words] : cases) {
    INFO(text);
    const std::string message = MessageOf([&, &text = text] {
      ArrayScanner scanner("a.json");
      scanner.Feed(text);
      scanner.Finish();
    });
    CHECK(message.find(words) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
}

std::vector<std::string> ReadAll(const AnnotationFile& file, int64_t step) {
  std::vector<std::string> records;
  for (int64_t at = 0; at < file.file().bytes; at += step) {
    const auto reader = file.Read(at, std::min(at + step, file.file().bytes), 1000);
    for (Line line; reader->Next(line);) {
      CHECK(static_cast<int64_t>(line.offset) >= at);
      CHECK((file.form() == AnnotationForm::kLines || line.number == std::ssize(records) + 1));
      CHECK(ReadAt(file.file(), line.offset, line.bytes) == (line.too_long ? "" : line.text));
      records.emplace_back(line.text);
      if (line.too_long) break;
    }
  }
  return records;
}

TEST_CASE("ranges of an array together give each record once", "[data][cpu]") {
  const TemporaryFolder folder;
  std::string text = "\xEF\xBB\xBF[";
  for (const std::string& object : Objects()) text += (text.back() == '[' ? "" : ",") + object;
  const AnnotationFile file(folder.Write("a.json", text + "]"));
  CHECK(file.form() == AnnotationForm::kArray);
  for (const int64_t step : {1, 7, 50, 10'000}) CHECK(ReadAll(file, step) == Objects());
  const auto reader = file.Read(0, file.file().bytes, /*longest=*/5);
  Line line;
  REQUIRE(reader->Next(line));
  CHECK_FALSE(line.too_long);
  REQUIRE(reader->Next(line));
  CHECK(line.too_long);
  CHECK(line.text.empty());
}

TEST_CASE("of a record that is too long no more is read than shows it", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string line = R"({"a":"0123456789"})";
  const AnnotationFile file(folder.Write("a.jsonl", line + "\n"));
  CHECK(file.Record(0, line.size(), std::ssize(line)) == line);
  CHECK(file.Record(0, line.size(), 5) == line.substr(0, 6));
  CHECK(file.Record(0, 4'000'000'000, 5).size() == 6);
}

TEST_CASE("files without records are named", "[data][cpu]") {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name, const std::string& bytes) {
    return MessageOf([&] {
      const AnnotationFile file(folder.Write(name, bytes));
      file.Read(0, file.file().bytes, 100);
    });
  };
  CHECK(open("a.json", " [ ] ").find("its array is empty") != std::string::npos);
  CHECK(open("a.json", "\n").find("holds no records") != std::string::npos);
  CHECK(open("a.tar", std::string(10240, '\0')).find("holds no samples") != std::string::npos);
  // Of an empty shard no range is read.
  CHECK(MessageOf([&] {
          const AnnotationFile file(folder.Write("a.tar", ""));
        }).ends_with("a.tar: holds no samples: it is empty; download it again"));
  CHECK(open("a.tar", "not a tar").find("it is cut") != std::string::npos);
  CHECK(open("a.tar", std::string(512, 'x')).find("no header of a tar") != std::string::npos);
  CHECK(open("a.tar", "\x1f\x8b\x08").find("gzip") != std::string::npos);
  for (const char* name : {"a.jsonl", "a.json", "a.parquet"})
    CHECK(open(name, "version https://git-lfs.github.com/spec/v1\noid").find("git lfs pull") !=
          std::string::npos);
  CHECK(open("a.parquet", "PAR1\x15").find("Parquet") != std::string::npos);
  CHECK(open("b.bin", std::string(257, '\0') + "ustar").find("tar") != std::string::npos);
  for (const char* name : {"a.csv", "a.tsv", "a.txt"}) {
    INFO(name);
    CHECK(open(name, "\xef\xbb\xbfquestion,answer\n").find("files are not read; write it as") !=
          std::string::npos);
    CHECK(open(name, "\xef\xbb\xbf \n{\"a\": 1}\n").empty());
  }
  const std::string wide("{\0}\0\n\0", 6), narrow("\0[\0]", 4);
  for (const std::string& text : {"\xff\xfe" + wide, "\xfe\xff" + narrow, wide, narrow}) {
    CHECK(open("a.jsonl", text).find("is text in UTF-16; write it in UTF-8") != std::string::npos);
  }
}

// Writes archives by Python's tarfile; `members` is the script's list of (name, text).
void WriteTar(const std::string& path, const std::string& format, const std::string& members) {
  RunPython("import io, tarfile\nwith tarfile.open('" + path + "', 'w', format=tarfile." + format +
            "_FORMAT) as tar:\n"
            "    for name, text in " +
            members +
            ":\n"
            "        info = tarfile.TarInfo(name)\n"
            "        if text is None:\n"
            "            info.type = tarfile.DIRTYPE\n"
            "            tar.addfile(info)\n"
            "        elif text.startswith('->'):\n"
            "            info.type, info.linkname = tarfile.SYMTYPE, text[2:]\n"
            "            tar.addfile(info)\n"
            "        else:\n"
            "            info.size = len(text.encode())\n"
            "            tar.addfile(info, io.BytesIO(text.encode()))\n");
}

constexpr char kJson[] =
    "'{\\\"query\\\": \\\"Q\\\", \\\"response\\\": \\\"A\\\", \\\"images\\\": [\\\"x/%s.jpg\\\"]}'";

TEST_CASE("shards written by Python's tarfile are read in each format", "[data][cpu]") {
  const TemporaryFolder folder;
  for (const std::string format : {"USTAR", "GNU", "PAX"}) {
    INFO(format);
    // 230 characters: ustar splits them, the others write an extension.
    const std::string path = folder / (format + ".tar");
    WriteTar(path, format,
             "[('d', None), ('d/0.jpg', 'picture'), ('d/0.json', " + std::string(kJson) +
                 " % '0'), ('.hidden', 'x'), ('README', 'x'), ('p/' + 'a' * 90 + '/' + 'b' * 90 + "
                 "'.left.jpg', 'L'), ('p/' + 'a' * 90 + '/' + 'b' * 90 + '.txt', 'caption'), "
                 "('2.json', " +
                 std::string(kJson) + " % 'none')]");
    const AnnotationFile file(path);
    REQUIRE(file.form() == AnnotationForm::kShard);
    const auto reader = file.Read(0, file.file().bytes, 1 << 20);
    Line line;
    REQUIRE(reader->Next(line));
    const ParsedRecord first = ParseShardRecord(line.text);
    CHECK(first.reason.empty());
    CHECK(first.record.id == "d/0");
    CHECK(first.record.images == std::vector<std::string>{"d/0.jpg"});
    CHECK(first.record.held == std::vector<std::string>{"picture"});
    CHECK(first.record.turns[0].text == "<image>\nQ");
    REQUIRE(reader->Next(line));
    const ParsedRecord second = ParseShardRecord(line.text);
    CHECK(second.reason.empty());
    CHECK(second.record.images[0].ends_with("b.left.jpg"));
    CHECK(second.record.images[0].size() == 192);
    CHECK(second.record.held == std::vector<std::string>{"L"});
    CHECK(second.record.turns[0].text == "<image>");
    CHECK(second.record.turns[1].text == "caption");
    REQUIRE(reader->Next(line));
    const ParsedRecord third = ParseShardRecord(line.text);
    CHECK(third.record.id == "2");
    CHECK(DefectName(third.defect) == "image_missing");
    CHECK_FALSE(reader->Next(line));
  }
}

TEST_CASE("pictures of a shard are named as WebDataset does, or come by their numbers",
          "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string json = "'{\\\"query\\\": \\\"Q\\\", \\\"response\\\": \\\"A\\\"%s}'";
  WriteTar(folder / "w.tar", "GNU",
           "[('a/0.left.jpg', 'L'), ('a/0.right.jpg', 'R'), ('a/0.json', " + json +
               " % ', \\\"images\\\": [\\\"right.jpg\\\", \\\"left.jpg\\\"]')] + "
               "[('1.%s.jpg' % n, n) for n in ('0', '1', '10', '2')] + [('1.txt', 'caption')] + "
               "[('2.b.jpg', 'b'), ('2.a.jpg', 'a'), ('2.txt', 'caption')]");
  const AnnotationFile file(folder / "w.tar");
  const auto reader = file.Read(0, file.file().bytes, 1 << 20);
  std::vector<std::vector<std::string>> held;
  for (Line line; reader->Next(line);) {
    const ParsedRecord parsed = ParseShardRecord(line.text);
    CHECK(parsed.reason.empty());
    held.push_back(parsed.record.held);
  }
  REQUIRE(held.size() == 3);
  CHECK(held[0] == std::vector<std::string>{"R", "L"});
  CHECK(held[1] == std::vector<std::string>{"0", "1", "2", "10"});
  CHECK(held[2] == std::vector<std::string>{"b", "a"});  // as they lie
}

TEST_CASE("videos of a shard are its members", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string json = "'{\\\"query\\\": \\\"Q\\\", \\\"response\\\": \\\"A\\\"%s}'";
  WriteTar(folder / "v.tar", "GNU",
           "[('0.mp4', 'first'), ('0.txt', 'caption'), ('1.MKV', 'second'), ('1.json', " + json +
               " % ', \\\"video\\\": \\\"x/1.MKV\\\"'), ('2.mp4', 'third'), ('2.json', " + json +
               " % ''), ('3.jpg', 'picture'), ('3.mp4', 'fourth'), ('3.txt', 'caption'), "
               "('4.mp4', 'fifth'), ('4.json', " +
               json + " % ', \\\"video\\\": \\\"none.mp4\\\"')]");
  const AnnotationFile file(folder / "v.tar");
  const auto reader = file.Read(0, file.file().bytes, 1 << 20);
  std::vector<ParsedRecord> records;
  for (Line line; reader->Next(line);) records.push_back(ParseShardRecord(line.text));
  REQUIRE(records.size() == 5);
  for (size_t i = 0; i < 3; ++i) {
    INFO(i << records[i].reason);
    REQUIRE(records[i].record.videos.size() == 1);
    CHECK(records[i].record.turns[0].videos);
    CHECK(records[i].record.turns[0].text.find("<video>") == 0);
    CHECK(records[i].record.images.empty());
  }
  CHECK(records[0].record.videos[0].path == "0.mp4");
  CHECK(records[0].record.videos[0].held == "first");
  CHECK(records[1].record.videos[0].held == "second");
  CHECK(records[2].record.videos[0].held == "third");
  CHECK(records[3].record.videos.empty());  // whose pictures are what the caption is of
  CHECK(records[3].record.images.size() == 1);
  CHECK(records[4].reason.find("none.mp4: no such member in the shard's sample") == 0);
}

TEST_CASE("members are told by their extensions in either case", "[data][cpu]") {
  const TemporaryFolder folder;
  WriteTar(folder / "u.tar", "GNU",
           "[('0.JPG', 'picture'), ('0.TXT', 'A'), ('1.jpg', 'picture'), ('1.JSON', " +
               std::string(kJson) + " % '1')]");
  const AnnotationFile file(folder / "u.tar");
  const auto reader = file.Read(0, file.file().bytes, 1 << 20);
  for (const char* picture : {"0.JPG", "1.jpg"}) {
    Line line;
    REQUIRE(reader->Next(line));
    const ParsedRecord record = ParseShardRecord(line.text);
    INFO(record.reason);
    REQUIRE(record.record.images == std::vector<std::string>{picture});
    CHECK(record.record.turns[1].text == "A");
  }
}

TEST_CASE("a sample with a member twice, or a text that is none, is refused", "[data][cpu]") {
  const TemporaryFolder folder;
  WriteTar(folder / "t.tar", "GNU",
           "[('0.jpg', 'a'), ('0.jpg', 'b'), ('0.txt', 'A'), ('1.mp4', 'a'), ('1.mp4', 'b'), "
           "('1.txt', 'A'), ('2.JPG', 'a'), ('2.jpg', 'b'), ('2.txt', 'caption'), "
           "('3.jpg', 'a'), ('3.txt', 'no text')]");
  std::string bytes = ReadWholeFile(folder / "t.tar");
  bytes[bytes.find("no text")] = '\xff';
  const AnnotationFile file(folder.Write("t.tar", bytes));
  const auto reader = file.Read(0, file.file().bytes, 1 << 20);
  std::vector<ParsedRecord> records;
  for (Line line; reader->Next(line);) records.push_back(ParseShardRecord(line.text));
  REQUIRE(records.size() == 4);
  CHECK(records[0].defect == Defect::kBadField);
  CHECK(records[0].reason == "0.jpg is in the sample twice");
  CHECK(records[1].defect == Defect::kBadField);
  CHECK(records[1].reason == "1.mp4 is in the sample twice");
  CHECK(records[2].reason.empty());  // two names
  CHECK(records[2].record.held == std::vector<std::string>{"a", "b"});
  CHECK(records[3].defect == Defect::kBadJson);
  CHECK(records[3].reason == "3.txt is not UTF-8");
}

TEST_CASE("a shard is one whatever its first member's name begins with", "[data][cpu]") {
  const TemporaryFolder folder;
  for (const std::string name : {"PAR1_0001", "BZh", "ARROW1"}) {
    INFO(name);
    for (const std::string format : {"USTAR", "GNU"}) {
      WriteTar(folder / "m.tar", format, "[('" + name + ".txt', 'x')]");
      AnnotationForm form = AnnotationForm::kLines;
      CHECK(MessageOf([&] { form = AnnotationFile(folder / "m.tar").form(); }).empty());
      CHECK(form == AnnotationForm::kShard);
    }
  }
}

TEST_CASE("a damaged shard is refused wherever it is cut", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.tar";
  WriteTar(path, "GNU", "[('0.txt', 'x' * 600), ('1.txt', 'y' * 20)]");
  const std::string whole = ReadWholeFile(path);
  const auto scan = [&](const std::string& bytes) {
    const TextFile file(folder.Write("b.tar", bytes));
    return MessageOf([&] { ScanShard(file); });
  };
  CHECK(scan(whole).empty());
  CHECK(scan(whole.substr(0, 512 + 1024 + 512 + 20)).empty());  // without padding and end's mark
  for (const size_t cut : {1, 511, 513, 1100, 1111, 1113, 1535, 1537, 2047, 2049, 2067, 2069}) {
    INFO(cut);
    CHECK(scan(whole.substr(0, cut)).find("cut") != std::string::npos);
  }
  const auto ends = [&](const std::string& bytes) {
    return HasEndMark(TextFile(folder.Write("b.tar", bytes)));
  };
  CHECK(ends(whole));
  CHECK(ends(whole.substr(0, whole.size() - 512)));
  for (const size_t cut : {512 + 1024, 512 + 1024 + 512 + 20, 512 + 1024 + 512 + 512}) {
    INFO(cut);
    CHECK(scan(whole.substr(0, cut)).empty());
    CHECK_FALSE(ends(whole.substr(0, cut)));
  }
  CHECK(scan(whole + whole).find("another follows") != std::string::npos);
  const std::string padding(100'000, '\0');  // of a blocking factor above tar's own
  CHECK(scan(whole + padding + whole).find("another follows") != std::string::npos);
  CHECK(scan(whole + padding).empty());
  CHECK(scan(whole + std::string(20 * 512, '\0')).empty());
  std::string flipped = whole;
  flipped[100] = 'x';
  CHECK(scan(flipped).find("no header of a tar archive") != std::string::npos);
  WriteTar(path, "PAX", "[('0.txt', 'x'), ('1.jpg', '->/etc/passwd')]");
  CHECK(scan(ReadWholeFile(path)).find("1.jpg is a link") != std::string::npos);
  WriteTar(path, "PAX", "[('0.txt', 'x'), ('0.txt', 'y')]");
  const AnnotationFile twice(path);
  const auto reader = twice.Read(0, twice.file().bytes, 1 << 20);
  Line line;
  REQUIRE(reader->Next(line));
  CHECK(ParseShardRecord(line.text).reason.find("twice") != std::string::npos);
}

}  // namespace
}  // namespace equipoise
