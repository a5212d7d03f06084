#include "data/index/annotation_file.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {
namespace {

constexpr int64_t kMostMetaBytes = 16 << 20;

[[noreturn]] void Refuse(const TextFile& file, const std::string& what) {
  throw DataError(file.path + ": " + what);
}

void RefuseOtherKinds(const TextFile& file) {
  using Kind = std::pair<std::string_view, const char*>;
  static constexpr std::array<Kind, 7> kKinds = {{
      {"\x1f\x8b", "is compressed by gzip; unpack it: gunzip -k FILE"},
      {"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it: zstd -d FILE"},
      {"\xfd\x37zXZ", "is compressed by xz; unpack it: unxz -k FILE"},
      {"BZh", "is compressed by bzip2; unpack it: bunzip2 -k FILE"},
      {"PK\x03\x04", "is a ZIP archive; unpack it"},
      {"PAR1",
       "is a Parquet file; write it as JSONL (python: "
       "datasets.Dataset.from_parquet(FILE).to_json(\"FILE.jsonl\"))"},
      {"ARROW1",
       "is an Arrow file; write it as JSONL (python: "
       "datasets.Dataset.from_file(FILE).to_json(\"FILE.jsonl\"))"},
  }};
  const std::string head = ReadAt(file, 0, 8);
  for (const auto& [magic, what] : kKinds) {
    if (head.starts_with(magic)) Refuse(file, what);
  }
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
           "is a meta file of InternVL, which lists sources; write each as an item of data.train "
           "(annotations: its annotation, images: its root, repeat: its repeat_time)");
  }
  Refuse(file, "is one JSON object over several lines; one object a line is needed");
}

}  // namespace

void RequireJsonLines(const TextFile& file) {
  RefuseOtherKinds(file);
  // A longer first line is a record as well, judged when it is read.
  LineReader reader(&file, 0, file.bytes, /*longest_line=*/1 << 20);
  Line line;
  if (!reader.Next(line)) Refuse(file, "holds no records; give a JSONL file");
  const std::string begin = ReadAt(file, line.offset, 256);
  const size_t first = begin.find_first_not_of(" \t");
  if (first == std::string::npos) return;
  if (begin[first] == '[') {
    throw DataError(
        fmt::format("{}:{}: is a JSON array; one JSON object a line is needed "
                    "(python: for x in json.load(f): print(json.dumps(x)))",
                    file.path, line.number));
  }
  if (begin[first] != '{' || line.too_long) return;
  const bool alone = line.text.find_last_not_of(" \t\r") == line.text.rfind('}');
  if (!alone) RefuseOneObject(file);
}

}  // namespace equipoise
