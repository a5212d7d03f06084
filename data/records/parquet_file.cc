#include "data/records/parquet_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "data/records/known_keys.h"
#include "data/records/parquet_api.h"
#include "data/records/record_forms.h"
#include "data/records/refusal.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libequipoise_parquet.so";

// The library beside the program, in lib/, or where Bazel builds it; empty: nowhere.
std::string FindLibrary() {
  std::error_code ignored;
  fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int up = 0; up < 6 && !folder.empty(); ++up, folder = folder.parent_path()) {
    for (const char* place : {"", "lib", "data/records"}) {
      const fs::path file = folder / place / kLibrary;
      if (fs::exists(file, ignored)) return file.string();
    }
  }
  return "";
}

}  // namespace

struct ParquetFile::Library {
  explicit Library(const std::string& path) {
    const std::string file = FindLibrary();
    if (file.empty()) {
      throw DataError(fmt::format(
          "{}: Parquet is read by {}, which is not beside this program; build it (bazel build "
          "//data/records:{}) or write the file as JSONL (python: "
          "datasets.Dataset.from_parquet(FILE).to_json(\"FILE.jsonl\"))",
          path, kLibrary, kLibrary));
    }
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* found = handle == nullptr ? nullptr : dlsym(handle, "EquipoiseParquet");
    if (found == nullptr)
      throw DataError(fmt::format("{}: {}; build it again", file, ShownText(dlerror())));
    api = reinterpret_cast<const ParquetApi* (*)()>(found)();
  }

  void* handle = nullptr;  // stays open: Arrow has threads of its own
  const ParquetApi* api = nullptr;
};

ParquetFile::ParquetFile(const std::string& path, int64_t bytes)
    : path_(path), library_(std::make_unique<Library>(path)) {
  char error[300] = "";
  file_ = library_->api->open(path.c_str(), &rows_, error, sizeof error);
  if (file_ == nullptr)
    throw DataError(
        fmt::format("{}: is no Parquet file that can be read: {}", path, ShownText(error)));
  if (rows_ == 0 || rows_ > bytes)
    throw DataError(path + (rows_ == 0 ? ": holds no records: it has no rows"
                                       : ": has more rows than bytes, so none is a conversation"));
  stride_ = bytes / rows_;
}

ParquetFile::~ParquetFile() {
  if (file_ != nullptr) library_->api->close(file_);
}

std::string ParquetFile::Row(int64_t row) const {
  std::string text;
  char error[300] = "";
  const auto take = [](void* user, const char* bytes, size_t count) {
    static_cast<std::string*>(user)->append(bytes, count);
  };
  if (library_->api->row(file_, row, take, &text, error, sizeof error) != 0)
    throw DataError(
        fmt::format("{}: row {}: {}; write the file again", path_, row + 1, ShownText(error)));
  return text;
}

std::string_view TextOfRow(std::string_view row, Record& record) {
  const size_t end = std::min(row.find('\0'), row.size());
  for (size_t at = end + 1; at + 8 <= row.size();) {
    uint64_t size = 0;
    for (size_t i = 8; i-- > 0;) size = size << 8 | static_cast<uint8_t>(row[at + i]);
    at += 8;
    if (size > row.size() - at) Refuse(Defect::kBadField, "a picture is cut");
    record.given.emplace_back(row.substr(at, size));
    at += size;
  }
  return row.substr(0, end);
}

ParsedRecord ParseParquetRecord(std::string_view row, const RecordKeys& keys) {
  return Guarded([&](Record& record) {
    const std::string_view text = TextOfRow(row, record);
    std::string held;
    ReadConversation(InKnownKeys(text, keys, held), record);
    record.given.clear();
    CheckRecord(record);
  });
}

}  // namespace equipoise
