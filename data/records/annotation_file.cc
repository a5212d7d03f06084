#include "data/records/annotation_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "data/records/json_array.h"
#include "data/records/shard.h"

namespace equipoise {

bool IsShardName(const std::string& path) { return path.ends_with(".tar"); }
bool IsParquetName(const std::string& path) { return path.ends_with(".parquet"); }

ParsedRecord ParseRecordIn(const SourceConfig& source, std::string_view text) {
  if (IsShardName(source.annotations)) return ParseShardRecord(text, source.keys);
  return IsParquetName(source.annotations) ? ParseParquetRecord(text, source.keys)
                                           : ParseRecord(text, source.keys);
}

namespace {

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr int64_t kMostMetaBytes = 16 << 20;

[[noreturn]] void Refuse(const TextFile& file, const std::string& what) {
  throw DataError(file.path + ": " + what);
}

// By its mark, or by the NUL beside the bracket that records begin with.
bool IsUtf16(std::string_view head) {
  const std::string_view begin = head.substr(0, 2);
  if (begin == "\xff\xfe" || begin == "\xfe\xff") return true;
  return begin.size() == 2 && begin.find('\0') != begin.npos &&
         begin.find_first_of("{[") != begin.npos;
}

void RefuseOtherKinds(const TextFile& file) {
  using Kind = std::pair<std::string_view, const char*>;
  static constexpr std::array<Kind, 8> kKinds = {{
      {"version https://git-lfs",
       "is Git LFS's pointer to the file; run `git lfs pull` in its folder"},
      {"\x1f\x8b", "is compressed by gzip; unpack it: gunzip -k FILE"},
      {"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it: zstd -d FILE"},
      {"\xfd\x37zXZ", "is compressed by xz; unpack it: unxz -k FILE"},
      {"BZh", "is compressed by bzip2; unpack it: bunzip2 -k FILE"},
      {"PK\x03\x04", "is a ZIP archive; unpack it"},
      {"PAR1", "is a Parquet file; its name must end in .parquet"},
      {"ARROW1",
       "is an Arrow file; write it as JSONL (python: "
       "datasets.Dataset.from_file(FILE).to_json(\"FILE.jsonl\"))"},
  }};
  const std::string head = ReadAt(file, 0, 512);
  const bool tar = head.find("ustar", 257) == 257;
  if (tar && IsShardName(file.path)) return;  // begins with its first member's name, any text
  for (const auto& [magic, what] : kKinds) {
    if (head.starts_with(magic) && !(magic == "PAR1" && IsParquetName(file.path)))
      Refuse(file, what);
  }
  for (const char* ending : {".csv", ".tsv", ".txt"}) {
    const size_t first = head.find_first_not_of("\xef\xbb\xbf \t\r\n");
    const bool named = file.path.size() > 4 &&
                       std::equal(file.path.end() - 4, file.path.end(), ending,
                                  [](char c, char known) { return std::tolower(c) == known; });
    if (!named || head.find_first_of("{[", first) == first) continue;
    Refuse(file, fmt::format("{} files are not read; write it as JSONL or Parquet{}", ending,
                             std::string_view(ending) == ".csv"
                                 ? " (python: pandas.read_csv(FILE).to_parquet(\"a.parquet\"))"
                                 : ""));
  }
  if (IsUtf16(head) && !IsShardName(file.path))
    Refuse(file, "is text in UTF-16; write it in UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW");
  const size_t name = head.find('\0');  // no text holds a NUL
  if (name < 257 && tar && !IsShardName(file.path))
    Refuse(file, "is a tar archive; a shard's name ends in .tar");
}

// A file that is one JSON object over several lines is no JSONL; InternVL keeps lists of sources in
// such files.
void RefuseOneObject(const TextFile& file) {
  if (file.bytes > kMostMetaBytes) return;
  Json object;
  try {
    object = ParseJson(ReadAt(file, 0, static_cast<uint64_t>(file.bytes)), file.path);
  } catch (const DataError&) {
    return;  // its lines are judged one by one
  }
  if (!object.is_object()) return;
  for (const auto& [name, source] : object.items()) {
    if (!source.is_object() || !source.contains("annotation")) continue;
    Refuse(file,
           "is a meta file of InternVL, which lists sources; give it a name that ends in .json");
  }
  Refuse(file, "is one JSON object over several lines; write one object a line, or an array");
}

// Whether `line` is the first of an object over several: a bracket alone, and no record behind it.
bool BeginsAnObject(const Line& line, LineReader& rest) {
  const size_t first = line.text.find_first_not_of(" \t\r");
  if (line.text.find_last_not_of(" \t\r") != first || line.text[first] != '{') return false;
  Line next;
  if (!rest.Next(next) || next.too_long) return false;
  const size_t text = next.text.find_first_not_of(" \t\r");
  return text != std::string_view::npos && next.text[text] == '"';
}

// The form of a file that is no shard, by its first record.
AnnotationForm FormOf(const TextFile& file) {
  // A longer first line is a record as well, judged when it is read.
  LineReader reader(&file, 0, file.bytes, /*longest_line=*/1 << 20);
  Line line;
  if (!reader.Next(line)) Refuse(file, "holds no records; give a JSONL file or a JSON array");
  const std::string begin = ReadAt(file, line.offset, 256);
  const size_t first = begin.find_first_not_of(" \t");
  if (first == std::string::npos) return AnnotationForm::kLines;
  // A line that is an array of its own is a bad record: an array of records has no line behind it.
  if (begin[first] == '[') return AnnotationForm::kArray;
  if (begin[first] != '{' || line.too_long) return AnnotationForm::kLines;
  const bool alone = line.text.find_last_not_of(" \t\r") == line.text.rfind('}');
  if (!alone) RefuseOneObject(file);
  if (BeginsAnObject(line, reader)) {
    Refuse(file,
           "has records over several lines; write one a line (jq -c . FILE > NEW), or an array");
  }
  return AnnotationForm::kLines;
}

std::vector<RecordExtent> ScanArray(const TextFile& file) {
  const uint64_t mark = ReadAt(file, 0, 3) == "\xEF\xBB\xBF" ? 3 : 0;
  ArrayScanner scanner(file.path, mark);
  for (uint64_t at = mark;; at += kBlockBytes) {
    const std::string block = ReadAt(file, at, kBlockBytes);
    scanner.Feed(block);
    if (block.size() < kBlockBytes) break;
  }
  std::vector<RecordExtent> records = scanner.Finish();
  if (records.empty()) Refuse(file, "holds no records: its array is empty");
  return records;
}

// Reader of records whose places are known.
class ExtentReader : public RecordReader {
 public:
  ExtentReader(const TextFile* file, const std::vector<RecordExtent>* extents, int64_t begin,
               int64_t end, int64_t longest)
      : file_(file), extents_(extents), end_(end), longest_(longest) {
    const auto first = std::lower_bound(extents->begin(), extents->end(), begin,
                                        [](const RecordExtent& extent, int64_t at) {
                                          return static_cast<int64_t>(extent.offset) < at;
                                        });
    next_ = static_cast<size_t>(first - extents->begin());
  }

  bool Next(Line& line) override {
    if (next_ == extents_->size()) return false;
    const RecordExtent& extent = (*extents_)[next_];
    if (static_cast<int64_t>(extent.offset) >= end_) return false;
    line = {extent.offset, extent.bytes, static_cast<int64_t>(++next_), {}, false};
    line.too_long = static_cast<int64_t>(extent.bytes) > longest_;
    if (line.too_long) return true;
    text_ = ReadAt(*file_, extent.offset, extent.bytes);
    line.text = text_;
    return true;
  }
  int64_t lines() const override { return 0; }

 private:
  const TextFile* file_;
  const std::vector<RecordExtent>* extents_;
  int64_t end_, longest_;
  size_t next_ = 0;
  std::string text_;
};

// Reader of the rows of a Parquet file, as if each took as many of its bytes.
class RowReader : public RecordReader {
 public:
  RowReader(const ParquetFile* file, int64_t begin, int64_t end, int64_t longest)
      : file_(file), end_(end), longest_(longest) {
    row_ = (begin + file->stride() - 1) / file->stride();
  }

  bool Next(Line& line) override {
    const int64_t offset = row_ * file_->stride();
    if (row_ >= file_->rows() || offset >= end_) return false;
    text_ = file_->Row(row_++);
    line = {static_cast<uint64_t>(offset), static_cast<uint64_t>(file_->stride()), row_, {}, false};
    line.too_long = std::ssize(text_) > longest_;
    if (!line.too_long) line.text = text_;
    return true;
  }
  int64_t lines() const override { return 0; }

 private:
  const ParquetFile* file_;
  int64_t end_, longest_, row_;
  std::string text_;
};

}  // namespace

AnnotationFile::AnnotationFile(const std::string& path) : file_(path) {
  RefuseOtherKinds(file_);
  if (IsParquetName(path)) {
    form_ = AnnotationForm::kParquet;
    parquet_ = std::make_unique<ParquetFile>(path, file_.bytes);
  } else {
    form_ = IsShardName(path) ? AnnotationForm::kShard : FormOf(file_);
    // Of no bytes no range is ever read, so that nothing else would tell.
    if (form_ == AnnotationForm::kShard && file_.bytes == 0)
      Refuse(file_, "holds no samples: it is empty; download it again");
  }
}

std::string AnnotationFile::Record(uint64_t offset, uint64_t bytes, int64_t longest) const {
  if (parquet_ == nullptr)
    return ReadAt(file_, offset, std::min(bytes, static_cast<uint64_t>(longest) + 1));
  return parquet_->Row(static_cast<int64_t>(offset) / parquet_->stride());
}

std::unique_ptr<RecordReader> AnnotationFile::Read(int64_t begin, int64_t end,
                                                   int64_t longest) const {
  if (form_ == AnnotationForm::kLines)
    return std::make_unique<LineReader>(&file_, begin, end, longest);
  if (parquet_ != nullptr) return std::make_unique<RowReader>(parquet_.get(), begin, end, longest);
  std::call_once(extents_->once, [&] {
    extents_->list = form_ == AnnotationForm::kShard ? ScanShard(file_) : ScanArray(file_);
  });
  return std::make_unique<ExtentReader>(&file_, &extents_->list, begin, end, longest);
}

}  // namespace equipoise
