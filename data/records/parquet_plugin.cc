#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/byte_size.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/records/parquet_api.h"

// Rows of a Parquet file as JSON. A row group is decoded whole, as Arrow's reader does it; the last
// ones stay in memory, so that neighbouring rows cost one decoding.

namespace {

constexpr int64_t kKeptBytes = int64_t{1} << 30;  // of the decoded row groups of all files

class ParquetFile;

// Decoded row groups of all files, the last used first. The last one stays, however large it is.
class KeptGroups {
 public:
  std::shared_ptr<arrow::Table> Find(const ParquetFile* file, int group) {
    const std::lock_guard lock(mutex_);
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
      if (kept->file != file || kept->group != group) continue;
      kept_.splice(kept_.begin(), kept_, kept);
      return kept_.front().table;
    }
    return nullptr;
  }

  void Add(const ParquetFile* file, int group, const std::shared_ptr<arrow::Table>& table) {
    const int64_t bytes = arrow::util::TotalBufferSize(*table);
    const std::lock_guard lock(mutex_);
    kept_.push_front({file, group, table, bytes});
    bytes_ += bytes;
    while (bytes_ > kKeptBytes && kept_.size() > 1) {
      bytes_ -= kept_.back().bytes;
      kept_.pop_back();
    }
  }

  void Drop(const ParquetFile* file) {
    const std::lock_guard lock(mutex_);
    kept_.remove_if([&](const Kept& kept) {
      if (kept.file == file) bytes_ -= kept.bytes;
      return kept.file == file;
    });
  }

 private:
  struct Kept {
    const ParquetFile* file;
    int group;
    std::shared_ptr<arrow::Table> table;
    int64_t bytes;
  };
  std::mutex mutex_;
  std::list<Kept> kept_;
  int64_t bytes_ = 0;
};

KeptGroups& Groups() {
  static KeptGroups groups;
  return groups;
}

// Writer of one row: JSON, and the pictures that go behind it.
class RowWriter {
 public:
  void Write(const arrow::Array& array, int64_t i) {
    if (array.IsNull(i)) return Put("null");
    switch (array.type_id()) {
      case arrow::Type::BOOL:
        return Put(static_cast<const arrow::BooleanArray&>(array).Value(i) ? "true" : "false");
      case arrow::Type::STRING:
        return WriteText(static_cast<const arrow::StringArray&>(array).GetView(i));
      case arrow::Type::LARGE_STRING:
        return WriteText(static_cast<const arrow::LargeStringArray&>(array).GetView(i));
      case arrow::Type::BINARY:
        return WriteBinary(static_cast<const arrow::BinaryArray&>(array).GetView(i));
      case arrow::Type::LARGE_BINARY:
        return WriteBinary(static_cast<const arrow::LargeBinaryArray&>(array).GetView(i));
      case arrow::Type::LIST:
        return WriteList(static_cast<const arrow::ListArray&>(array), i);
      case arrow::Type::LARGE_LIST:
        return WriteList(static_cast<const arrow::LargeListArray&>(array), i);
      case arrow::Type::FIXED_SIZE_LIST:
        return WriteList(static_cast<const arrow::FixedSizeListArray&>(array), i);
      case arrow::Type::STRUCT:
        return WriteStruct(static_cast<const arrow::StructArray&>(array), i);
      case arrow::Type::DICTIONARY: {
        const auto& indexed = static_cast<const arrow::DictionaryArray&>(array);
        return Write(*indexed.dictionary(), indexed.GetValueIndex(i));
      }
      default:
        return WriteNumber(array, i);
    }
  }

  void Put(std::string_view text) { json_ += text; }
  void WriteText(std::string_view text) {
    json_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        json_ += '\\';
        json_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
        json_ += escape;
      } else {
        json_ += c;
      }
    }
    json_ += '"';
  }
  void Give(ParquetSink sink, void* user) const {
    sink(user, json_.data(), json_.size());
    sink(user, "", 1);
    for (const std::string_view picture : pictures_) {
      char size[8];
      for (size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(picture.size() >> 8 * i);
      sink(user, size, sizeof size);
      sink(user, picture.data(), picture.size());
    }
  }

 private:
  template <class List>
  void WriteList(const List& list, int64_t i) {
    json_ += '[';
    const arrow::Array& values = *list.values();
    for (int64_t at = list.value_offset(i); at < list.value_offset(i + 1); ++at) {
      if (at > list.value_offset(i)) json_ += ',';
      Write(values, at);
    }
    json_ += ']';
  }

  void WriteStruct(const arrow::StructArray& object, int64_t i) {
    json_ += '{';
    for (int field = 0; field < object.num_fields(); ++field) {
      if (field > 0) json_ += ',';
      const std::string& name = object.struct_type()->field(field)->name();
      WriteText(name);
      json_ += ':';
      in_bytes_ = name == "bytes";
      Write(*object.field(field), i);
      in_bytes_ = false;
    }
    json_ += '}';
  }

  void WriteBinary(std::string_view bytes) {
    const std::string number = std::to_string(pictures_.size());
    pictures_.push_back(bytes);
    json_ += in_bytes_ ? number : "{\"bytes\":" + number + "}";
  }

  // Numbers; values of other kinds (dates, decimals) are nothing that a record needs.
  void WriteNumber(const arrow::Array& array, int64_t i) {
    const bool real = arrow::is_floating(array.type_id());
    if (!real && !arrow::is_integer(array.type_id())) return Put("null");
    const std::string text = array.GetScalar(i).ValueOrDie()->ToString();
    Put(real && text.find_first_not_of("0123456789.eE+-") != text.npos ? "null" : text);
  }

  std::string json_;
  std::vector<std::string_view> pictures_;  // in the row group's memory
  bool in_bytes_ = false;                   // the value of a struct's field "bytes"
};

// Throws std::runtime_error with Arrow's message, in one line.
template <class Value>
Value Checked(arrow::Result<Value> result) {
  if (result.ok()) return std::move(result).ValueUnsafe();
  std::string message = result.status().message();
  std::replace(message.begin(), message.end(), '\n', ' ');
  throw std::runtime_error(message);
}

class ParquetFile {
 public:
  explicit ParquetFile(const char* path) {
    auto file = Checked(arrow::io::ReadableFile::Open(path));
    reader_ = Checked(parquet::arrow::OpenFile(std::move(file), arrow::default_memory_pool()));
    reader_->set_use_threads(false);
    const auto metadata = reader_->parquet_reader()->metadata();
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      first_rows_.push_back(rows_);
      rows_ += metadata->RowGroup(group)->num_rows();
    }
  }
  ~ParquetFile() { Groups().Drop(this); }
  ParquetFile(const ParquetFile&) = delete;
  ParquetFile& operator=(const ParquetFile&) = delete;
  int64_t rows() const { return rows_; }

  void Give(int64_t row, ParquetSink sink, void* user) {
    if (row < 0 || row >= rows_) throw std::runtime_error("there is no such row");
    const auto next = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
    const auto group = static_cast<int>(next - first_rows_.begin()) - 1;
    const std::shared_ptr<arrow::Table> table = Group(group);
    const int64_t in_group = row - first_rows_[static_cast<size_t>(group)];
    RowWriter writer;
    writer.Put("{");
    for (int column = 0; column < table->num_columns(); ++column) {
      if (column > 0) writer.Put(",");
      writer.WriteText(table->field(column)->name());
      writer.Put(":");
      int64_t i = in_group;
      for (const auto& chunk : table->column(column)->chunks()) {
        if (i < chunk->length()) {
          writer.Write(*chunk, i);
          break;
        }
        i -= chunk->length();
      }
    }
    writer.Put("}");
    writer.Give(sink, user);
  }

 private:
  std::shared_ptr<arrow::Table> Group(int group) {
    const std::lock_guard lock(mutex_);  // the reader's; two threads do not decode the same group
    std::shared_ptr<arrow::Table> table = Groups().Find(this, group);
    if (table != nullptr) return table;
    table = Checked(reader_->ReadRowGroup(group));
    Groups().Add(this, group, table);
    return table;
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int64_t> first_rows_;  // of each row group
  int64_t rows_ = 0;
  std::mutex mutex_;
};

// Runs `action`; its failure goes to `error`.
template <class Action>
bool Run(char* error, size_t error_bytes, const Action& action) {
  try {
    action();
    return true;
  } catch (const std::exception& failure) {
    std::snprintf(error, error_bytes, "%s", failure.what());
    return false;
  }
}

void* Open(const char* path, int64_t* rows, char* error, size_t error_bytes) {
  std::unique_ptr<ParquetFile> file;
  Run(error, error_bytes, [&] { file = std::make_unique<ParquetFile>(path); });
  if (file != nullptr) *rows = file->rows();
  return file.release();
}

int Row(void* file, int64_t row, ParquetSink sink, void* user, char* error, size_t error_bytes) {
  return Run(error, error_bytes, [&] { static_cast<ParquetFile*>(file)->Give(row, sink, user); })
             ? 0
             : 1;
}

void Close(void* file) { std::unique_ptr<ParquetFile>(static_cast<ParquetFile*>(file)); }

}  // namespace

extern "C" const ParquetApi* EquipoiseParquet() {
  static constexpr ParquetApi kApi = {Open, Row, Close};
  return &kApi;
}
