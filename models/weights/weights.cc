#include "models/weights/weights.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/spec/weight_names.h"
#include "models/weights/gptq_folder.h"
#include "models/weights/gptq_part.h"
#include "models/weights/packed_part.h"
#include "models/weights/random_numbers.h"
#include "models/weights/safetensors.h"
#include "parallel/intra_op.h"

namespace equipoise {
namespace {

constexpr int64_t kTaskElements = 1 << 14;  // fewest elements that a thread draws at a time

// Draws elements [first, last) of a tensor.
void FillElements(uint64_t key, const Init& init, int64_t first, int64_t last, float* out) {
  // In even steps, since normal numbers come in pairs.
  IntraOpFor(first / 2, (last + 1) / 2, kTaskElements / 2, [&](int64_t from, int64_t to) {
    const int64_t begin = std::max(first, 2 * from), end = std::min(last, 2 * to);
    if (init.bound > 0) {
      DrawUniform(key, init.bound, begin, end, out + (begin - first));
    } else {
      DrawNormal(key, init.deviation, begin, end, out + (begin - first));
    }
  });
}

// Draws the elements of a rank's part. A number depends only on its index in the whole tensor, so
// any number of threads gives the same.
void FillPart(uint64_t key, const Init& init, const Parameter& parameter, float* out) {
  const TensorPart& part = parameter.part;
  const int64_t count = parameter.numel();
  if (!part.split()) return FillElements(key, init, 0, count, out);
  const auto dim = static_cast<size_t>(part.dim);
  int64_t inner = 1;
  for (size_t d = dim + 1; d < parameter.shape.size(); ++d) inner *= parameter.shape[d];
  const int64_t run = parameter.shape[dim] * inner;
  const int64_t runs = run == 0 ? 0 : count / run,
                grain = kTaskElements / std::max(run, int64_t{1});
  IntraOpFor(0, runs, std::max(grain, int64_t{1}), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = (part.begin + i * part.whole) * inner;
      FillElements(key, init, from, from + run, out + i * run);
    }
  });
}

// A model's parameters by name.
std::map<std::string, TensorSpec> TensorSpecs(const ModelConfig& config) {
  std::map<std::string, TensorSpec> tensors;
  for (LayerSpec& layer : LayerSpecs(config)) {
    for (TensorSpec& tensor : layer.parameters) tensors[tensor.name] = std::move(tensor);
  }
  return tensors;
}

void InitializeOne(Parameter& parameter, const Init& init, uint64_t seed) {
  at::Tensor& weight = parameter.stored();
  if (init.deviation == 0 && init.bound == 0) {
    weight.fill_(init.mean);
    return;
  }
  const std::string& name = parameter.name;
  const uint64_t key = XXH3_64bits_withSeed(name.data(), name.size(), seed);
  const bool in_place = weight.is_cpu() && weight.scalar_type() == at::kFloat;
  const at::Tensor host = in_place ? weight : at::empty(weight.sizes(), at::kFloat);
  FillPart(key, init, parameter, host.mutable_data_ptr<float>());
  if (!in_place) weight.copy_(host);
  const int64_t row = init.zero_row - parameter.part.begin;
  if (init.zero_row >= 0 && 0 <= row && row < parameter.shape[0]) weight.select(0, row).zero_();
}

MatrixPart PartOf(const Parameter& parameter) {
  return {parameter.part.split() ? parameter.part.dim : -1, parameter.part.begin, parameter.shape};
}

// Packs a whole weight, in fp32 on the CPU, as the parameter's.
void Pack(const at::Tensor& whole, const TensorSpec& spec, at::Device device,
          Parameter& parameter) {
  const MatrixPart part = PartOf(parameter);
  parameter.packed = spec.packing == Packing::kGptq
                         ? GptqPart(RoundToGptq(whole, spec.gptq), part, device)
                         : PackedPart(whole, spec.packing, part, device, parameter.name);
}

at::Device DeviceOf(const std::vector<Parameter*>& parameters) {
  for (const Parameter* parameter : parameters) {
    if (!parameter->packs) return parameter->stored().device();
  }
  return at::kCPU;
}

// A parameter with the whole tensor of one that is packed.
Parameter WholeOf(const Parameter& packed) {
  Parameter whole;
  whole.name = packed.name;
  whole.shape = packed.whole_shape();
  whole.master = at::empty(whole.shape, at::kFloat);
  return whole;
}

// The files of a folder, and where they hold a model's parameters.
class FolderWeights {
 public:
  FolderWeights(WeightFolder folder, const ModelConfig& config)
      : folder_(std::move(folder)),
        files_(folder_.path),
        map_(LongNames(), folder_.names ? *folder_.names : WeightNamesOf(config), folder_.path),
        tensors_(TensorSpecs(config)) {}

  const std::string& path() const { return folder_.path; }
  // The place of a parameter; an empty name where the folder lacks it.
  FileWeight Find(const std::string& parameter) const {
    FileWeight weight = map_.Find(parameter);
    if (!weight.name.empty()) weight.name.erase(0, folder_.prefix.size());
    return weight;
  }
  const SafetensorsReader& FileOf(const FileWeight& weight) const {
    return files_.FileOf(weight.name);
  }
  const SafetensorsFolder& files() const { return files_; }
  const WeightMap& map() const { return map_; }
  const std::map<std::string, TensorSpec>& tensors() const { return tensors_; }
  // The description of a parameter whose weight is in GPTQ's form; null for another.
  const TensorSpec* GptqOf(const Parameter& parameter) const {
    if (!parameter.packs) return nullptr;
    const TensorSpec& spec = tensors_.at(parameter.name);
    return spec.packing == Packing::kGptq ? &spec : nullptr;
  }
  // Rows of the whole parameter that the folder lacks, since they stand for new tokens.
  int64_t AddedRows(const Parameter& parameter) const {
    const std::string& name = parameter.name;
    const bool vocabulary =
        name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight");
    return vocabulary ? folder_.added_rows : 0;
  }

 private:
  std::vector<std::string> LongNames() const {
    std::vector<std::string> names = files_.names();
    for (std::string& name : names) name.insert(0, folder_.prefix);
    return names;
  }

  WeightFolder folder_;
  SafetensorsFolder files_;
  WeightMap map_;
  std::map<std::string, TensorSpec> tensors_;
};

// A parameter of the vocabulary to which rows were added, and what of it a folder has.
struct GrownRows {
  GrownRows(const Parameter& parameter, int64_t added) : part(parameter.part) {
    const bool by_rows = part.split() && part.dim == 0;
    in_file = parameter.whole_shape()[0] - added;
    const int64_t begin = by_rows ? part.begin : 0;
    known = std::clamp<int64_t>(in_file - begin, 0, parameter.shape[0]);
    if (by_rows) part.whole = in_file;
    shape = parameter.shape;
    shape[0] = known;
    if (known > 0) return;
    part = {};  // nothing of this rank's: the whole is checked
    shape[0] = in_file;
  }

  int64_t in_file = 0, known = 0;  // rows of the folder, and those among this rank's
  TensorPart part;
  std::vector<int64_t> shape;
};

void CheckShapeOf(const Parameter& parameter, const FolderWeights& folder,
                  const FileWeight& weight) {
  const SafetensorsReader& file = folder.FileOf(weight);
  const int64_t added = folder.AddedRows(parameter);
  if (added == 0) {
    return file.CheckShape(weight.name, parameter.shape, parameter.part, weight.rows);
  }
  const GrownRows rows(parameter, added);
  file.CheckShape(weight.name, rows.shape, rows.part, weight.rows);
}

// The mean of a matrix's rows, summed in their order.
at::Tensor MeanOfRows(const SafetensorsReader& file, const std::string& name, int64_t rows) {
  constexpr int64_t kRows = 4096;  // read at a time
  at::Tensor sum;
  for (int64_t first = 0; first < rows; first += kRows) {
    const int64_t last = std::min(first + kRows, rows);
    const at::Tensor some = file.ReadRows(name, first, last).to(at::kDouble).sum(0);
    sum = sum.defined() ? sum.add(some) : some;
  }
  return sum.div(static_cast<double>(rows));
}

// Reads a parameter (its whole tensor where it is packed) into `target`.
void ReadParameter(const Parameter& parameter, const FolderWeights& folder,
                   const FileWeight& weight, at::Tensor& target) {
  const SafetensorsReader& file = folder.FileOf(weight);
  const TensorPart part = parameter.packs ? TensorPart{} : parameter.part;
  const int64_t added = folder.AddedRows(parameter);
  if (added == 0) return file.ReadInto(weight.name, target, part, weight.rows);
  const GrownRows rows(parameter, added);
  if (rows.known > 0) {
    at::Tensor known = target.narrow(0, 0, rows.known);
    file.ReadInto(weight.name, known, rows.part, weight.rows);
  }
  const int64_t ours = target.size(0) - rows.known;
  if (ours == 0) return;
  at::Tensor mean = MeanOfRows(file, weight.name, rows.in_file);
  if (part.split() && part.dim == 1) mean = mean.narrow(0, part.begin, target.size(1));
  target.narrow(0, rows.known, ours).copy_(mean.expand({ours, -1}));
}

// Throws DataError for a weight that the folder has, in a form in which it cannot be read.
void RefuseGptq(const Parameter& parameter, const FolderWeights& folder) {
  std::string name = parameter.name;
  const size_t dot = name.rfind(".weight");
  if (dot == name.npos || folder.Find(name.replace(dot, 7, ".qweight")).name.empty()) return;
  throw DataError(fmt::format(
      "{}: {}: is in GPTQ's form, in which a layer is a frozen base alone; name its component in "
      "model.base_modules, and no layer of it in model.adapter.train",
      folder.path(), name));
}

// Throws DataError for a folder whose layers PEFT has wrapped, as InternVL's trainer saves them.
void RefuseUnmerged(const FolderWeights& folder) {
  for (const std::string& name : folder.files().names()) {
    if (name.find("base_model.model.") == name.npos) continue;
    throw DataError(
        fmt::format("{}: its LoRA adapters are not merged ({}); merge them first, of InternVL's "
                    "trainer with its tools/merge_lora.py",
                    folder.path(), name));
  }
}

// Throws DataError unless the files have all parameters, with their shapes.
void RequireWeights(const std::vector<Parameter*>& parameters, const FolderWeights& folder) {
  std::string first_missing;
  int64_t missing = 0;
  for (const Parameter* parameter : parameters) {
    if (parameter->role == ParameterRole::kAdapter) continue;
    if (const TensorSpec* gptq = folder.GptqOf(*parameter)) {
      RequireGptq(folder.files(), folder.map(), *gptq);
      continue;
    }
    const FileWeight weight = folder.Find(parameter->name);
    if (weight.name.empty()) {
      RefuseGptq(*parameter, folder);
      if (missing++ == 0) first_missing = parameter->name;
    } else {
      CheckShapeOf(*parameter, folder, weight);
    }
  }
  if (missing == 0) return;
  RefuseUnmerged(folder);
  throw DataError(fmt::format(
      "{}: {} of {} weights are missing, first {}; do config.json and the weights belong together?",
      folder.path(), missing, parameters.size(), first_missing));
}

// Checks a folder that ties the head by its configuration and holds the head nevertheless: the head
// must equal the embedding, or the folder would be read as another model than the one that was
// saved. Each rank compares the rows of the embedding that it holds.
void CheckTiedHead(const std::vector<Parameter*>& parameters, const FolderWeights& folder,
                   const LayerSpec& last) {
  if (last.tied.name.empty()) return;
  const FileWeight head = folder.Find(last.name + ".weight");
  if (head.name.empty()) return;
  for (const Parameter* parameter : parameters) {
    if (parameter->name != last.tied.name) continue;
    const FileWeight embedding = folder.Find(parameter->name);
    const SafetensorsReader &of_head = folder.FileOf(head),
                            &of_embedding = folder.FileOf(embedding);
    const GrownRows rows(*parameter, folder.AddedRows(*parameter));
    if (rows.known == 0) continue;
    const int64_t first = parameter->part.begin, end = first + rows.known;
    if (of_head.entries().at(head.name).shape == of_embedding.entries().at(embedding.name).shape &&
        of_head.ReadRows(head.name, first, end)
            .equal(of_embedding.ReadRows(embedding.name, first, end))) {
      continue;
    }
    throw DataError(fmt::format(
        "{}: tie_word_embeddings is true, but {} differs from {}; set it to false in config.json",
        folder.path(), head.name, embedding.name));
  }
}

// Whether all values are zero. Throws DataError where one is not finite.
bool OnlyZeros(const at::Tensor& values, const std::string& file, const std::string& name) {
  if (values.numel() == 0) return false;
  const auto [least, most] = at::aminmax(values);
  const double low = least.item<double>(), high = most.item<double>();
  if (std::isfinite(low) && std::isfinite(high)) return low == 0 && high == 0;
  throw DataError(fmt::format(
      "{}: tensor {}: holds values that are infinite or no numbers; download or write it again",
      file, name));
}

// Reads one weight. Returns whether all of its values are zero.
bool LoadOne(Parameter& parameter, const FolderWeights& folder, at::Device device) {
  if (const TensorSpec* gptq = folder.GptqOf(parameter)) {
    MatrixPart part = PartOf(parameter);
    const GptqMatrix rows = ReadGptq(folder.files(), folder.map(), *gptq, part);
    const std::string bias = gptq->name.substr(0, gptq->name.rfind('.')) + ".bias";
    if (folder.tensors().count(bias) == 0) RequireNoBias(folder.files(), folder.map(), *gptq);
    if (part.dim == 0) part = {-1, 0, parameter.shape};  // its rows alone were read
    parameter.packed = GptqPart(rows, part, device);
    return false;
  }
  const FileWeight weight = folder.Find(parameter.name);
  at::Tensor values = parameter.packs ? WholeOf(parameter).master : parameter.stored();
  ReadParameter(parameter, folder, weight, values);
  const bool none = OnlyZeros(values, folder.FileOf(weight).path(), weight.name);
  if (parameter.packs) Pack(values, folder.tensors().at(parameter.name), device, parameter);
  return none;
}

}  // namespace

void InitializeWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config,
                       uint64_t seed) {
  const std::map<std::string, TensorSpec> tensors = TensorSpecs(config);
  for (Parameter* parameter : parameters) {
    const TensorSpec& spec = tensors.at(parameter->name);
    if (!parameter->packs) {
      InitializeOne(*parameter, spec.init, seed);
      continue;
    }
    Parameter whole = WholeOf(*parameter);
    InitializeOne(whole, spec.init, seed);
    Pack(whole.master, spec, DeviceOf(parameters), *parameter);
  }
}

std::vector<std::string> LoadWeights(const std::vector<Parameter*>& parameters,
                                     const ModelConfig& config, const WeightFolder& from) {
  const FolderWeights folder(from, config);
  RequireWeights(parameters, folder);
  const at::Device device = DeviceOf(parameters);
  std::vector<std::string> zeros;
  for (Parameter* parameter : parameters) {
    if (parameter->role == ParameterRole::kAdapter) continue;
    const bool none = LoadOne(*parameter, folder, device);
    if (!none || parameter->shape.size() != 2) continue;
    const std::string name = folder.Find(parameter->name).name;
    if (name.ends_with(".weight")) zeros.push_back(name);
  }
  CheckTiedHead(parameters, folder, LayerSpecs(config).back());
  return zeros;
}

void ReadWeight(Parameter& parameter, const ModelConfig& config, const WeightFolder& folder) {
  const FolderWeights weights(folder, config);
  RequireWeights({&parameter}, weights);
  LoadOne(parameter, weights, DeviceOf({&parameter}));
}

void CheckWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config,
                  const WeightFolder& folder) {
  RequireWeights(parameters, FolderWeights(folder, config));
}

at::Tensor FuseRows(const std::vector<std::pair<FusedRows, at::Tensor>>& parts) {
  std::map<int64_t, at::Tensor> groups;  // by FusedRows::first: [repeats, rows, ...]
  for (const auto& [rows, tensor] : parts) {
    groups[rows.first] = tensor.unflatten(0, {rows.repeats, -1});
  }
  std::vector<at::Tensor> ordered;
  for (const auto& [first, tensor] : groups) ordered.push_back(tensor);
  return at::cat(ordered, 1).flatten(0, 1);
}

std::map<std::string, at::Tensor> NamedForFolder(const std::map<std::string, at::Tensor>& tensors,
                                                 const ModelConfig& config) {
  const WeightNames names = WeightNamesOf(config);
  std::map<std::string, at::Tensor> named;
  std::map<std::string, std::vector<std::pair<FusedRows, at::Tensor>>> fused;
  for (const auto& [name, tensor] : tensors) {
    const FileWeight weight = names.InFolder(name);
    if (weight.rows.whole()) {
      named[weight.name] = tensor;
    } else {
      fused[weight.name].emplace_back(weight.rows, tensor);
    }
  }
  for (const auto& [name, parts] : fused) named[name] = FuseRows(parts);
  return named;
}

}  // namespace equipoise
