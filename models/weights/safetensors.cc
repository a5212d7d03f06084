#include "models/weights/safetensors.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "configs/base/error.h"
#include "configs/base/file_handle.h"
#include "configs/base/json.h"
#include "configs/base/write_advice.h"
#include "models/weights/torch_file.h"

namespace equipoise {
namespace {

// Memory for a dtype conversion while reading.
constexpr int64_t kConversionBytes = 4 << 20;

const std::map<std::string, at::ScalarType>& DtypeTable() {
  static const std::map<std::string, at::ScalarType> kTable = {{"BOOL", at::kBool},
                                                               {"U8", at::kByte},
                                                               {"I8", at::kChar},
                                                               {"I16", at::kShort},
                                                               {"U16", at::kUInt16},
                                                               {"I32", at::kInt},
                                                               {"U32", at::kUInt32},
                                                               {"I64", at::kLong},
                                                               {"U64", at::kUInt64},
                                                               {"F16", at::kHalf},
                                                               {"BF16", at::kBFloat16},
                                                               {"F32", at::kFloat},
                                                               {"F64", at::kDouble},
                                                               {"F8_E4M3", at::kFloat8_e4m3fn},
                                                               {"F8_E5M2", at::kFloat8_e5m2}};
  return kTable;
}

std::string DtypeName(at::ScalarType dtype) {
  for (const auto& [name, value] : DtypeTable()) {
    if (value == dtype) return name;
  }
  EQUIPOISE_CHECK(false, "dtype ", at::toString(dtype), " has no safetensors name");
  return "";
}

std::string ShapeText(at::IntArrayRef shape) {
  std::ostringstream out;
  out << shape;
  return out.str();
}

// Shape of the whole tensor, of which `part` has the shape `shape`.
std::vector<int64_t> WholeShape(std::vector<int64_t> shape, const TensorPart& part) {
  if (part.split()) shape[static_cast<size_t>(part.dim)] = part.whole;
  return shape;
}

// A file that is being written.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path)
      : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (!file_.valid()) Fail("cannot write");
  }

  void Write(const void* data, size_t bytes) {
    if (!WriteFully(file_, {static_cast<const char*>(data), bytes})) Fail("cannot write");
  }
  void Sync() {
    if (fsync(file_.get()) != 0) Fail("cannot sync");
    if (!file_.Close()) Fail("cannot close");
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    const int error = errno;
    throw RunError(path_ + ": " + what + ": " + std::strerror(error) + WriteAdvice(error));
  }
  std::string path_;
  FileHandle file_;
};

using NamedTensor = std::pair<std::string, LazyTensor>;

int64_t ElementBytes(const LazyTensor& tensor) {
  return static_cast<int64_t>(c10::elementSize(tensor.dtype()));
}

std::string HeaderText(const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t end = offset + tensor.numel() * ElementBytes(tensor);
    header[name] = {{"dtype", DtypeName(tensor.dtype())},
                    {"shape", tensor.sizes()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

at::Tensor SafetensorsReader::Read(const std::string& name) const {
  const SafetensorsEntry& entry = file_.Find(name);
  at::Tensor tensor = at::empty(entry.shape, DtypeTable().at(entry.dtype));
  file_.ReadBytes(entry.begin, entry.end, tensor.data_ptr());
  return tensor;
}

void SafetensorsReader::CheckShape(const std::string& name, const std::vector<int64_t>& shape,
                                   const TensorPart& part, const FusedRows& fused) const {
  std::vector<int64_t> whole = WholeShape(shape, part);
  if (!whole.empty()) whole[0] = whole[0] / fused.count * fused.period;
  const SafetensorsEntry& entry = file_.Find(name);
  if (whole == entry.shape) return;
  throw DataError(fmt::format("{}: {} has the shape {}, the model needs {}", path(), name,
                              ShapeText(entry.shape), ShapeText(whole)));
}

void SafetensorsReader::ReadInto(const std::string& name, at::Tensor& target,
                                 const TensorPart& part, const FusedRows& fused) const {
  if (!target.is_cpu()) {
    at::Tensor host = at::empty(target.sizes(), target.scalar_type());
    ReadInto(name, host, part, fused);
    target.copy_(host);
    return;
  }
  CheckShape(name, target.sizes().vec(), part, fused);
  EQUIPOISE_CHECK(target.is_contiguous(), name);
  const SafetensorsEntry& entry = file_.Find(name);
  if (target.dim() == 0 || target.numel() == 0) return ReadRun(entry, 0, target.view({-1}));
  const bool by_rows = part.split() && part.dim == 0;
  const int64_t rows = by_rows ? part.whole : target.size(0);
  const int64_t group = rows / fused.repeats, block = group / fused.count;
  const int64_t begin = by_rows ? part.begin : 0, end = begin + target.size(0);
  for (int64_t row = begin; row < end;) {  // the rows of a group are contiguous in the file
    const int64_t last = std::min(end, (row / group + 1) * group);
    const int64_t in_file = row / group * fused.period * block + fused.first * block + row % group;
    ReadRowRange(entry, in_file, target.narrow(0, row - begin, last - row), part);
    row = last;
  }
}

void SafetensorsReader::ReadRowRange(const SafetensorsEntry& entry, int64_t first,
                                     const at::Tensor& target, const TensorPart& part) const {
  const std::vector<int64_t> whole = WholeShape(target.sizes().vec(), part);
  const bool by_columns = part.split() && part.dim > 0;
  const auto dim = static_cast<size_t>(by_columns ? part.dim : 0);
  int64_t inner = 1;  // elements of an index along `dim`
  for (size_t d = dim + 1; d < whole.size(); ++d) inner *= whole[d];
  const at::Tensor flat = target.view({-1});
  if (!by_columns) return ReadRun(entry, first * inner, flat);
  // Each index before `dim` has one run of elements in the file.
  int64_t row = inner;
  for (size_t d = 1; d <= dim; ++d) row *= whole[d];
  const int64_t run = target.size(part.dim) * inner;
  int64_t from = first * row + part.begin * inner;
  for (int64_t done = 0; done < flat.numel(); done += run, from += part.whole * inner) {
    ReadRun(entry, from, flat.narrow(0, done, run));
  }
}

void SafetensorsReader::ReadElements(const std::string& name, int64_t first,
                                     at::Tensor& target) const {
  if (!target.is_cpu()) {
    at::Tensor host = at::empty(target.sizes(), target.scalar_type());
    ReadElements(name, first, host);
    target.copy_(host);
    return;
  }
  const SafetensorsEntry& entry = file_.Find(name);
  EQUIPOISE_CHECK(target.is_contiguous(), name);
  const int64_t end = (first + target.numel()) * SafetensorsElementSize(entry.dtype);
  EQUIPOISE_CHECK(0 <= first && end <= entry.end - entry.begin, name, " from ", first);
  ReadRun(entry, first, target.view({-1}));
}

// Reads target.numel() elements of the flattened tensor, from `first` on.
void SafetensorsReader::ReadRun(const SafetensorsEntry& entry, int64_t first,
                                const at::Tensor& target) const {
  const at::ScalarType dtype = DtypeTable().at(entry.dtype);
  const int64_t element_size = SafetensorsElementSize(entry.dtype);
  const int64_t from = entry.begin + first * element_size;
  if (dtype == target.scalar_type()) {
    file_.ReadBytes(from, from + target.numel() * element_size, target.data_ptr());
    return;
  }
  const int64_t piece = kConversionBytes / element_size;
  at::Tensor buffer = at::empty({std::min(piece, target.numel())}, dtype);
  for (int64_t done = 0; done < target.numel(); done += piece) {
    const int64_t count = std::min(piece, target.numel() - done);
    const int64_t begin = from + done * element_size;
    file_.ReadBytes(begin, begin + count * element_size, buffer.data_ptr());
    target.narrow(0, done, count).copy_(buffer.narrow(0, 0, count));
  }
}

at::Tensor SafetensorsReader::ReadRows(const std::string& name, int64_t first, int64_t last) const {
  const SafetensorsEntry& entry = file_.Find(name);
  EQUIPOISE_CHECK(!entry.shape.empty() && 0 <= first && first <= last && last <= entry.shape[0],
                  name, " rows ", first, " to ", last);
  std::vector<int64_t> shape = entry.shape;
  const int64_t row_bytes = shape[0] == 0 ? 0 : (entry.end - entry.begin) / shape[0];
  shape[0] = last - first;
  at::Tensor tensor = at::empty(shape, DtypeTable().at(entry.dtype));
  file_.ReadBytes(entry.begin + first * row_bytes, entry.begin + last * row_bytes,
                  tensor.data_ptr());
  return tensor;
}

void WriteSafetensors(const std::string& path, const std::map<std::string, LazyTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> order(tensors.begin(), tensors.end());
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return ElementBytes(a.second) > ElementBytes(b.second);
  });
  const std::string header = HeaderText(order, metadata);
  unsigned char prefix[8];
  for (int i = 0; i < 8; ++i) prefix[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  OutputFile file(path);
  file.Write(prefix, sizeof(prefix));
  file.Write(header.data(), header.size());
  for (const auto& [name, tensor] : order) {
    const at::Tensor host = tensor.Get().cpu();  // one at a time
    EQUIPOISE_CHECK(host.is_contiguous() && host.sizes() == tensor.sizes(), name);
    EQUIPOISE_CHECK(host.scalar_type() == tensor.dtype(), name);
    file.Write(host.const_data_ptr(), host.nbytes());
  }
  file.Sync();
}

SafetensorsReader::SafetensorsReader(const std::string& path)
    : file_(IsTorchFile(path) ? SafetensorsFile(path, ReadTorchHeader(path))
                              : SafetensorsFile(path)) {}

SafetensorsFolder::SafetensorsFolder(const std::string& path) : folder_(path) {
  if (std::filesystem::is_regular_file(path)) {
    OpenOne(path);
    return;
  }
  for (const char* name : {"model.safetensors", "pytorch_model.bin"}) {
    const std::string single = fmt::format("{}/{}", path, name);
    if (std::filesystem::exists(single)) {
      OpenOne(single);
      return;
    }
    if (std::filesystem::exists(single + ".index.json")) {
      OpenShards(single + ".index.json");
      return;
    }
  }
  if (!std::filesystem::is_directory(path))
    throw DataError(path + ": no such folder; say where it is now, by --set model.hf for a base");
  throw DataError(path +
                  ": holds no weights: neither model.safetensors nor pytorch_model.bin, nor one of "
                  "them with .index.json");
}

void SafetensorsFolder::OpenOne(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsReader>(path));
  for (const auto& [tensor, entry] : files_[0]->entries()) owner_[tensor] = 0;
}

void SafetensorsFolder::OpenShards(const std::string& index_path) {
  const Json index = ReadJsonFile(index_path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw DataError(index_path + ": weight_map: missing, or not an object");
  }
  std::map<std::string, size_t> opened;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    // A file in this folder, never a path out of it.
    if (shard.empty() || shard == ".." ||
        shard.find_first_of(std::string("/\0", 2)) != shard.npos) {
      throw DataError(
          fmt::format("{}: weight_map: the value of {} is no file name", index_path, name));
    }
    auto found = opened.find(shard);
    if (found == opened.end()) {
      files_.push_back(std::make_unique<SafetensorsReader>(fmt::format("{}/{}", folder_, shard)));
      found = opened.emplace(shard, files_.size() - 1).first;
    }
    if (!files_[found->second]->Has(name)) {
      throw DataError(fmt::format("{}: weight_map: {} does not hold {}", index_path, shard, name));
    }
    owner_[name] = found->second;
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const auto& [name, entry] : files_[i]->entries()) {
      const auto owner = owner_.find(name);
      if (owner != owner_.end() && owner->second != i) {
        throw DataError(fmt::format("{}: {} is in two shards, {} and {}", index_path, name,
                                    files_[owner->second]->path(), files_[i]->path()));
      }
    }
  }
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> result;
  result.reserve(owner_.size());
  for (const auto& [name, file] : owner_) result.push_back(name);
  return result;
}

const SafetensorsReader& SafetensorsFolder::FileOf(const std::string& name) const {
  return *files_.at(owner_.at(name));
}

}  // namespace equipoise
