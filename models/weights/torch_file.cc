#include "models/weights/torch_file.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/regular_file.h"
#include "configs/base/shown_text.h"
#include "models/weights/torch_pickle.h"

namespace equipoise {
namespace {

using Archive = caffe2::serialize::PyTorchStreamReader;

constexpr size_t kMaxPickle = 10'000'000;  // that of 40,000 tensors has 6 MB

[[noreturn]] void Refuse(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what);
}

// Refuses what is no zip archive, by its first bytes. Returns the size of the file.
int64_t CheckKind(const std::string& path) {
  const OpenedFile opened = OpenRegularFile(path);
  if (!opened.problem.empty()) Refuse(path, opened.problem);
  std::array<char, 8> first{};
  if (ReadFullyAt(opened.file, first.data(), first.size(), 0) != static_cast<ssize_t>(first.size()))
    Refuse(path, "too short for a file of weights");
  const std::string_view text(first.data(), first.size());
  if (text.starts_with("version "))
    Refuse(path, "is Git LFS's pointer to the file; run `git lfs pull` in its folder");
  if (text.starts_with("PK\x03\x04")) return opened.bytes;
  Refuse(path,
         "is no archive of torch.save (before PyTorch 1.6 it wrote others); write it again: "
         "torch.save(torch.load(FILE), FILE)");
}

struct Storage {
  int64_t begin = 0, bytes = 0;  // in the file
};

// The storages of an archive, found when they are asked for.
class Storages {
 public:
  Storages(Archive& archive, int64_t file_bytes, const std::string& path)
      : archive_(archive), left_(file_bytes), path_(path) {}

  const Storage& Find(const std::string& key) {
    const auto found = found_.find(key);
    if (found != found_.end()) return found->second;
    const std::string record = "data/" + key;
    if (!archive_.hasRecord(record))
      Refuse(path_, fmt::format("is damaged: there is no record {}", record));
    Storage storage = {static_cast<int64_t>(archive_.getRecordOffset(record)),
                       static_cast<int64_t>(archive_.getRecordSize(record))};
    // Compressed records would hold more bytes than the file: torch.save writes none.
    left_ -= storage.bytes;
    if (left_ < 0)
      Refuse(path_, "its records are compressed, or damaged; write it with torch.save");
    return found_.emplace(key, storage).first->second;
  }

 private:
  Archive& archive_;
  int64_t left_;
  const std::string& path_;
  std::map<std::string, Storage> found_;
};

// The bytes of a tensor, which is a run of rows in its storage.
SafetensorsEntry EntryOf(const PickledTensor& tensor, const Storage& storage,
                         const std::string& where) {
  SafetensorsEntry entry;
  entry.dtype = tensor.dtype;
  entry.shape = tensor.shape;
  const int64_t element = SafetensorsElementSize(tensor.dtype);
  int64_t elements = 1;
  bool fits = true;
  for (const int64_t size : tensor.shape)
    fits = fits && !__builtin_mul_overflow(elements, size, &elements);
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); fits && i-- > 0;) {
    if (elements > 0 && tensor.shape[i] != 1 && tensor.stride[i] != stride)
      Refuse(where, "lies in the file in another order than row by row; make it contiguous()");
    fits = !__builtin_mul_overflow(stride, std::max<int64_t>(tensor.shape[i], 1), &stride);
  }
  int64_t begin = 0, bytes = 0;
  fits = fits && !__builtin_mul_overflow(tensor.offset, element, &begin) &&
         !__builtin_mul_overflow(elements, element, &bytes) && begin <= storage.bytes &&
         bytes <= storage.bytes - begin;
  if (!fits) Refuse(where, "is larger than what the file has of it; download or write it again");
  entry.begin = storage.begin + begin;
  entry.end = entry.begin + bytes;
  return entry;
}

}  // namespace

bool IsTorchFile(const std::string& path) { return path.ends_with(".bin"); }

SafetensorsHeader ReadTorchHeader(const std::string& path) {
  const int64_t bytes = CheckKind(path);
  SafetensorsHeader header;
  try {
    Archive archive(path);
    if (archive.hasRecord("byteorder")) {
      const auto [order, size] = archive.getRecord("byteorder");
      if (std::string_view(static_cast<const char*>(order.get()), size) != "little")
        Refuse(path, "was written on a big-endian machine; write it again on this one");
    }
    if (!archive.hasRecord("data.pkl") || archive.getRecordSize("data.pkl") > kMaxPickle)
      Refuse(path, "is no archive of torch.save: it has no data.pkl, or one above 10 MB");
    const auto [pickle, size] = archive.getRecord("data.pkl");
    const auto tensors = ReadTensorPickle({static_cast<const char*>(pickle.get()), size}, path);
    if (tensors.empty()) Refuse(path, "holds no tensors by their names");
    Storages storages(archive, bytes, path);
    for (const auto& [name, tensor] : tensors) {
      header.entries.emplace(
          name, EntryOf(tensor, storages.Find(tensor.storage), path + ": " + ShownText(name, 200)));
    }
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    Refuse(path, fmt::format("is a damaged archive ({}); download or write it again",
                             ShownText(what.substr(0, what.find('\n')), 120)));
  }
  return header;
}

}  // namespace equipoise
