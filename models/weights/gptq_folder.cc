#include "models/weights/gptq_folder.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr std::array<const char*, 4> kSuffixes = {".qweight", ".qzeros", ".scales", ".g_idx"};
constexpr char kWeight[] = ".weight";

// The module of NAME.weight.
std::string ModuleOf(const std::string& weight) {
  EQUIPOISE_CHECK(weight.ends_with(kWeight), weight);
  return weight.substr(0, weight.size() - std::string(kWeight).size());
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// Outputs of the file's tensors, of which the weight's are some.
int64_t FileOutputs(const TensorSpec& weight, const FusedRows& rows) {
  return weight.shape[0] / rows.count * rows.period;
}

// The file's outputs that are rows [begin, begin + count) of the weight.
at::Tensor FileColumns(const TensorSpec& weight, const FusedRows& rows, int64_t begin,
                       int64_t count) {
  at::Tensor columns = at::arange(begin, begin + count, at::kLong);
  const int64_t group = weight.shape[0] / rows.repeats, block = group / rows.count;
  auto* data = columns.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = data[i];
    data[i] = row / group * rows.period * block + rows.first * block + row % group;
  }
  return columns;
}

void CheckEntry(const SafetensorsReader& file, const std::string& name,
                const std::vector<int64_t>& shape, bool is_int) {
  const SafetensorsEntry& entry = file.entries().at(name);
  if (entry.shape != shape) {
    throw DataError(fmt::format("{}: {} has the shape {}, GPTQ of 4 bits needs {}", file.path(),
                                name, ShapeText(entry.shape), ShapeText(shape)));
  }
  const std::string& dtype = entry.dtype;
  const bool fits = is_int ? dtype == "I32" : dtype == "F16" || dtype == "BF16" || dtype == "F32";
  if (fits) return;
  throw DataError(fmt::format("{}: {} is of {}, GPTQ of 4 bits needs {}", file.path(), name, dtype,
                              is_int ? "I32" : "F16, BF16 or F32"));
}

void CheckGroups(const at::Tensor& groups, int64_t count, const std::string& file,
                 const std::string& name) {
  const auto [least, most] = at::aminmax(groups);
  const int64_t low = least.item<int32_t>(), high = most.item<int32_t>();
  if (low >= 0 && high < count) return;
  throw DataError(
      fmt::format("{}: {}: holds the group {} of {}, counted from 0; download or write it again",
                  file, name, low < 0 ? low : high, count));
}

}  // namespace

std::string GptqWeightName(const std::string& name) {
  for (const std::string suffix : kSuffixes) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size()) + kWeight;
  }
  return name;
}

void RequireGptq(const SafetensorsFolder& files, const WeightMap& map, const TensorSpec& weight) {
  const std::string module = ModuleOf(weight.name);
  for (const char* suffix : kSuffixes) {
    if (!map.Find(module + suffix).name.empty()) continue;
    if (!map.Find(weight.name).name.empty()) {
      throw DataError(fmt::format(
          "{}: {}: is not in GPTQ's form, in which config.json says that the folder is; correct "
          "model.base_modules or quantization_config",
          files.path(), weight.name));
    }
    throw DataError(
        fmt::format("{}: {}{}: missing; do config.json and the weights belong together?",
                    files.path(), module, suffix));
  }
  const FileWeight codes = map.Find(module + ".qweight");
  const int64_t out = FileOutputs(weight, codes.rows), in = weight.shape[1];
  const int64_t groups = weight.gptq.Groups(in);
  const auto check = [&](const char* suffix, const std::vector<int64_t>& shape, bool is_int) {
    const std::string name = map.Find(module + suffix).name;
    CheckEntry(files.FileOf(name), name, shape, is_int);
  };
  check(".qweight", {(in + 7) / 8, out}, true);
  check(".qzeros", {groups, (out + 7) / 8}, true);
  check(".scales", {groups, out}, false);
  check(".g_idx", {in}, true);
}

GptqMatrix ReadGptq(const SafetensorsFolder& files, const WeightMap& map, const TensorSpec& weight,
                    const MatrixPart& part) {
  RequireGptq(files, map, weight);
  const std::string module = ModuleOf(weight.name);
  const auto read = [&](const char* suffix) {
    const std::string name = map.Find(module + suffix).name;
    return files.FileOf(name).Read(name);
  };
  const GptqTensors tensors = {read(".qweight"), read(".qzeros"), read(".scales"), read(".g_idx")};
  const std::string groups = map.Find(module + ".g_idx").name;
  CheckGroups(tensors.g_idx, tensors.scales.size(0), files.FileOf(groups).path(), groups);
  if (!at::isfinite(tensors.scales).all().item<bool>()) {
    const std::string name = map.Find(module + ".scales").name;
    throw DataError(fmt::format(
        "{}: tensor {}: holds values that are infinite or no numbers; download or write it again",
        files.FileOf(name).path(), name));
  }
  const int64_t begin = part.dim == 0 ? part.begin : 0;
  const int64_t count = part.dim == 0 ? part.shape[0] : weight.shape[0];
  const FusedRows rows = map.Find(module + ".qweight").rows;
  return UnpackGptq(tensors, FileColumns(weight, rows, begin, count), weight.gptq.zero_offset);
}

void RequireNoBias(const SafetensorsFolder& files, const WeightMap& map, const TensorSpec& weight) {
  const std::string name = map.Find(ModuleOf(weight.name) + ".bias").name;
  if (name.empty()) return;
  const SafetensorsReader& file = files.FileOf(name);
  if (file.Read(name).eq(0).all().item<bool>()) return;
  throw DataError(
      fmt::format("{}: {}: is not 0, and this layer has no bias by config.json; correct it there",
                  file.path(), name));
}

}  // namespace equipoise
