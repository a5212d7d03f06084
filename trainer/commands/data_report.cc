#include "trainer/commands/data_report.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <map>
#include <ostream>
#include <sstream>

#include "configs/base/error.h"
#include "configs/base/parallel_for.h"
#include "configs/base/shown_text.h"
#include "data/loading/packing.h"
#include "models/families/families.h"
#include "models/ops/pixels.h"
#include "models/weights/safetensors.h"
#include "trainer/settings/group_settings.h"

namespace equipoise {
namespace {

// A histogram with buckets [from, next from) that begin at 0, 1, 2, 4, 8, ..., and quantiles.
Json Histogram(std::vector<int64_t> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  int64_t sum = 0;
  for (const int64_t value : values) sum += value;
  Json buckets = Json::array();
  for (int64_t from = 0; from <= values.back(); from = from == 0 ? 1 : 2 * from) {
    const auto first = std::lower_bound(values.begin(), values.end(), from);
    const auto last = std::lower_bound(first, values.end(), from == 0 ? 1 : 2 * from);
    if (buckets.empty() && first == last) continue;
    buckets.push_back({{"from", from}, {"samples", last - first}});
  }
  return {{"min", values.front()},
          {"p10", quantile(.1)},
          {"p50", quantile(.5)},
          {"p90", quantile(.9)},
          {"p99", quantile(.99)},
          {"max", values.back()},
          {"sum", sum},
          {"mean", static_cast<double>(sum) / static_cast<double>(values.size())},
          {"buckets", buckets}};
}

Json DefectCounts(const std::vector<int64_t>& counts) {
  Json object = Json::object();
  for (size_t i = 1; i < counts.size(); ++i) {
    if (counts[i] > 0) object[std::string(DefectName(static_cast<Defect>(i)))] = counts[i];
  }
  return object;
}

Json PackingOf(const RunConfig& config, const std::vector<SourceConfig>& sources,
               const CostIndex& index, const ImageSpec& images) {
  EpochPacker::Options options;
  options.groups = GroupOptionsOf(config, LoadCost(), images);
  options.groups.global_batch = 1;  // statistics of an epoch do not depend on it
  options.window = config.balance.window;
  options.repeat = SourceRepeats(sources);
  EpochPacker packer(&index, options);
  const EpochSummary epoch = packer.Summarize(0);
  return {{"group", ToString(config.balance.group)},
          {"max_tiles", packer.groups().limit_units()},
          {"max_tokens", packer.groups().limits.tokens},
          {"packs", epoch.groups},
          {"steps", epoch.groups / config.train.global_batch},
          {"fill_share", epoch.balance.fill_share},
          {"pad_ratio", epoch.balance.pad_ratio}};
}

void PrintHistogram(const std::string& name, const Json& histogram, std::ostream& out) {
  if (histogram.is_null()) return;
  out << name << ": mean " << std::fixed << std::setprecision(1) << histogram["mean"].get<double>();
  for (const char* key : {"min", "p10", "p50", "p90", "p99", "max", "sum"}) {
    out << ", " << key << " " << histogram[key].get<int64_t>();
  }
  out << "\n";
  int64_t most = 1;
  for (const Json& bucket : histogram["buckets"])
    most = std::max(most, bucket["samples"].get<int64_t>());
  for (const Json& bucket : histogram["buckets"]) {
    const auto samples = bucket["samples"].get<int64_t>();
    out << std::setw(10) << bucket["from"].get<int64_t>() << " " << std::setw(10) << samples << " "
        << std::string(static_cast<size_t>((samples * 50 + most - 1) / most), '#') << "\n";
  }
}

// Of each picture or video of a sample, its place, or its first frame's, among the record's images.
std::vector<size_t> FirstImages(const ScannedSample& sample) {
  std::vector<size_t> firsts;
  for (size_t i = 0; firsts.size() < sample.pictures.size();) {
    firsts.push_back(i);
    const Video* video = sample.record.VideoOf(i);
    i += video == nullptr ? 1 : video->frames;
  }
  return firsts;
}

// Segments of consecutive tokens of one kind; of image tokens, one segment per picture or video.
Json SegmentsOf(const OpenedData& data, const ScannedSample& sample) {
  const auto& encoded = sample.encoded;
  const ImageSpec images = ImageSpecOf(data.model_config);
  const auto kind_at = [&](size_t i) {
    if (encoded.trained[i] != 0) return "trained";
    const int32_t id = encoded.ids[i];
    const bool shown = id == data.chat_template.image_token() ||
                       (id == data.chat_template.video_token() && !sample.record.videos.empty());
    return shown ? "image" : "context";
  };
  const std::vector<size_t> firsts = FirstImages(sample);
  Json segments = Json::array();
  for (size_t begin = 0, image = 0; begin < encoded.ids.size();) {
    size_t end = begin + 1;
    const std::string kind = kind_at(begin);
    while (end < encoded.ids.size() && kind_at(end) == kind) ++end;
    Json segment = {{"kind", kind}, {"tokens", end - begin}};
    if (kind == "image" && image < sample.pictures.size()) {
      segment["image"] = sample.record.images[firsts[image]];
      segment["tiles"] = images.TilesOf(sample.pictures[image++].patches);
    } else {
      segment["text"] = data.tokenizer.Decode({encoded.ids.begin() + static_cast<int64_t>(begin),
                                               encoded.ids.begin() + static_cast<int64_t>(end)},
                                              /*skip_special=*/false);
    }
    segments.push_back(segment);
    begin = end;
  }
  return segments;
}

void RequireSample(const OpenedData& data, int64_t sample) {
  if (sample >= 0 && sample < data.index.size()) return;
  throw ConfigError(fmt::format("show: there is no sample {}; the records are numbered 0 to {}",
                                sample, data.index.size() - 1));
}

Json DefectLine(const OpenedData& data, int64_t sample, const ScannedSample& checked) {
  const BadSample bad = data.dataset.Locate(sample, checked.record.id, checked.reason);
  return {{"sample", sample},
          {"file", bad.file},
          {"line", bad.line},
          {"id", bad.id},
          {"defect", DefectName(checked.defect)},
          {"reason", bad.reason}};
}

}  // namespace

Json DataStatistics(const RunConfig& config, const std::vector<SourceConfig>& sources,
                    const OpenedData& data) {
  const CostIndex& index = data.index;
  const ImageSpec spec = ImageSpecOf(data.model_config);
  std::vector<int64_t> tokens, trained, tiles, images;
  for (int64_t i = 0; i < index.size(); ++i) {
    const SampleCost& cost = index[i];
    if (cost.defect != Defect::kNone) continue;
    tokens.push_back(cost.tokens);
    trained.push_back(cost.trained);
    tiles.push_back(spec.TilesOf(cost.patches));
    images.push_back(cost.images);
  }
  Json statistics = {{"records", index.size()},
                     {"usable", tokens.size()},
                     {"defects", DefectCounts(index.CountDefects())},
                     {"index", index.path()}};
  if (!tokens.empty()) statistics["packing"] = PackingOf(config, sources, index, spec);
  statistics["tokens"] = Histogram(std::move(tokens));
  statistics["trained"] = Histogram(std::move(trained));
  statistics["tiles"] = Histogram(std::move(tiles));
  statistics["images"] = Histogram(std::move(images));
  return statistics;
}

void PrintStatistics(const Json& statistics, std::ostream& out) {
  out << "records: " << statistics["records"] << ", usable " << statistics["usable"] << "\n";
  for (const auto& [defect, count] : statistics["defects"].items())
    out << "defect " << defect << ": " << count << "\n";
  PrintHistogram("tokens a sample", statistics["tokens"], out);
  PrintHistogram("trained tokens a sample", statistics["trained"], out);
  PrintHistogram("tiles a sample", statistics["tiles"], out);
  PrintHistogram("pictures and videos a sample", statistics["images"], out);
  if (!statistics.contains("packing")) return;
  const Json& packing = statistics["packing"];
  out << "packing: " << packing["packs"] << " packs an epoch by "
      << packing["group"].get<std::string>() << ", at most " << packing["max_tiles"]
      << " tiles and " << packing["max_tokens"] << " tokens (" << packing["steps"]
      << " steps), filled to " << std::fixed << std::setprecision(2)
      << 100 * packing["fill_share"].get<double>() << " %, "
      << 100 * packing["pad_ratio"].get<double>() << " % of the computed tokens are padding\n";
}

int64_t FindSample(const OpenedData& data, const std::string& text) {
  int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  // An id may be of digits too: 000000033471, or more than there are records.
  const bool numbered = whole && (text == "0" || text.front() != '0');
  if (numbered && number < data.index.size()) return number;
  for (int64_t i = 0; i < data.index.size(); ++i) {
    if (data.dataset.Scan(i).record.id == text) return i;
  }
  if (numbered) return number;
  throw ConfigError(
      fmt::format("show: no record has the id '{}'; give an id, or a number from 0 to {}",
                  ShownText(text), data.index.size() - 1));
}

Json DescribeSample(const OpenedData& data, int64_t sample) {
  RequireSample(data, sample);
  const ScannedSample scanned = data.dataset.Scan(sample);
  const BadSample place = data.dataset.Locate(sample, scanned.record.id, "");
  Json description = {
      {"sample", sample}, {"file", place.file}, {"line", place.line}, {"id", place.id}};
  if (scanned.defect != Defect::kNone) {
    description["defect"] = DefectName(scanned.defect);
    description["reason"] = scanned.reason;
    return description;
  }
  description["images"] = Json::array();
  const ImageSpec images = ImageSpecOf(data.model_config);
  const std::vector<size_t> firsts = FirstImages(scanned);
  for (size_t i = 0; i < scanned.pictures.size(); ++i) {
    const PictureLoad& picture = scanned.pictures[i];
    description["images"].push_back({{"path", scanned.record.images[firsts[i]]},
                                     {"tiles", images.TilesOf(picture.patches)},
                                     {"tokens", picture.image_tokens}});
    const Video* video = scanned.record.VideoOf(firsts[i]);
    if (video != nullptr) {
      description["images"].back()["frames"] = video->frames;
      if (images.has_grids()) description["images"].back()["times"] = scanned.grids[i].times;
    }
    if (!images.lists_grids()) continue;
    const PatchGrid& grid = scanned.grids[i];
    if (grid.rows <= 0) continue;  // squares, whatever their size was
    const char* key = images.has_grids() ? "patches" : "pixels";
    description["images"].back()[key] = {grid.rows, grid.columns};
  }
  description["tiles"] = images.TilesOf(scanned.all_pictures().patches);
  description["tokens"] = scanned.encoded.ids.size();
  description["trained"] = scanned.trained;
  description["full_tokens"] = scanned.full_tokens;
  description["truncated"] = scanned.full_tokens > std::ssize(scanned.encoded.ids);
  description["segments"] = SegmentsOf(data, scanned);
  description["ids"] = scanned.encoded.ids;
  description["mask"] = scanned.encoded.trained;
  return description;
}

namespace {

// Heights and widths of a record's pictures in the form of Transformers, for `check`, and the
// pixels of videos apart from those of pictures. Where several pictures are one square each, how
// many there are tells it, and their sizes are not used.
void AddSizes(const ScannedSample& sample, const ImageSpec& images,
              std::map<std::string, at::Tensor>* tensors) {
  std::vector<at::Tensor> pictures, videos, sizes;
  std::vector<int64_t> frames;  // of each video
  int64_t tile = 0;
  const std::vector<size_t> firsts = FirstImages(sample);
  for (size_t i = 0; i < sample.grids.size(); ++i) {
    const int64_t tiles = images.TilesOf(sample.pictures[i].patches);
    const at::Tensor pixels = (*tensors)["pixel_values"].narrow(0, tile, tiles);
    tile += tiles;
    if (sample.record.VideoOf(firsts[i]) != nullptr) {
      videos.push_back(pixels);
      frames.push_back(tiles);
      continue;
    }
    pictures.push_back(pixels);
    sizes.push_back(at::tensor({sample.grids[i].rows, sample.grids[i].columns}, at::kLong));
  }
  tensors->erase("pixel_values");
  if (!pictures.empty()) {
    (*tensors)["pixel_values"] = at::cat(pictures);
    const at::Tensor all = at::stack(sizes);
    (*tensors)["image_sizes"] = all.masked_fill(all.lt(0), images.tile_size);
    if (images.lone_tiles) (*tensors)["batch_num_images"] = at::full({1}, all.size(0), at::kLong);
  }
  if (videos.empty()) return;
  const bool alike = std::count(frames.begin(), frames.end(), frames[0]) == std::ssize(frames);
  (*tensors)["pixel_values_videos"] = alike ? at::stack(videos) : at::cat(videos);
  if (!alike) (*tensors)["frames_per_video"] = at::tensor(frames, at::kLong);
}

// Grids of a record's pictures and videos in the form of Transformers, for `check`, and the pixels
// of videos apart from those of pictures.
void AddGrids(const ScannedSample& sample, const ImageSpec& images,
              std::map<std::string, at::Tensor>* tensors) {
  std::vector<at::Tensor> pixels[2], grids[2];  // of pictures, of videos
  std::vector<float> seconds;
  int64_t patch = 0;
  size_t parts = 0;  // frames so far of a video whose times are videos of their own
  const std::vector<size_t> firsts = FirstImages(sample);
  for (size_t i = 0; i < sample.grids.size(); ++i) {
    const PatchGrid& grid = sample.grids[i];
    const Video* video = sample.record.VideoOf(firsts[i]);
    const size_t kind = video == nullptr ? 0 : 1;
    pixels[kind].push_back((*tensors)["pixel_values"].narrow(0, patch, grid.patches()));
    patch += grid.patches();
    if (parts == 0) {
      grids[kind].push_back(at::tensor({grid.times, grid.rows, grid.columns}, at::kLong));
      if (video != nullptr) {
        seconds.push_back(static_cast<float>(static_cast<double>(images.frames) / video->fps));
      }
    } else {
      grids[kind].back()[0] += grid.times;
    }
    if (video == nullptr) continue;
    parts += video->frames;
    if (parts == video->whole) parts = 0;
  }
  tensors->erase("pixel_values");
  for (size_t kind = 0; kind < 2; ++kind) {
    if (pixels[kind].empty()) continue;
    (*tensors)[kind == 0 ? "pixel_values" : "pixel_values_videos"] = at::cat(pixels[kind]);
    (*tensors)[kind == 0 ? "image_grid_thw" : "video_grid_thw"] = at::stack(grids[kind]);
  }
  if (!seconds.empty() && images.videos.positions_per_second > 0) {
    (*tensors)["second_per_grid_ts"] = at::tensor(seconds);
  }
}

}  // namespace

void WriteSample(const OpenedData& data, int64_t sample, const std::string& path) {
  RequireSample(data, sample);
  const SampleCost& cost = data.index[sample];
  const ScannedSample scanned = data.dataset.Scan(sample);
  const auto refuse = [&](const std::string& reason) {
    const BadSample place = data.dataset.Locate(sample, scanned.record.id, reason);
    throw DataError(fmt::format("{}:{}: {}; show another sample", place.file, place.line, reason));
  };
  if (scanned.defect != Defect::kNone) refuse(scanned.reason);
  if (cost.defect != Defect::kNone) refuse("changed since the cost index was made");
  const std::vector<int64_t> one = {sample};
  const LoadedPack loaded = data.dataset.Load(MakePack(data.index, one, LossWeight::kToken));
  if (!loaded.bad.empty()) refuse(loaded.bad[0].reason);
  const at::Tensor ids = loaded.batch.input_ids.unsqueeze(0);
  at::Tensor labels = at::full_like(ids, kNoTarget);
  // Targets are shifted: targets[i] is labels[i + 1].
  const int64_t shifted = ids.size(1) - 1;
  labels.narrow(1, 1, shifted).copy_(loaded.batch.targets.narrow(0, 0, shifted));
  std::map<std::string, at::Tensor> tensors = {{"input_ids", ids}, {"labels", labels}};
  if (loaded.batch.pixel_values.defined()) {
    const ops::PixelScale scale(ImageSpecOf(data.model_config), at::kCPU);
    tensors["pixel_values"] = scale(loaded.batch.pixel_values);
  }
  if (loaded.batch.position_ids.dim() == 2)
    tensors["position_ids"] = loaded.batch.position_ids.unsqueeze(1);
  const ImageSpec images = ImageSpecOf(data.model_config);
  if (images.has_grids()) {
    AddGrids(scanned, images, &tensors);
  } else if (!scanned.grids.empty()) {
    AddSizes(scanned, images, &tensors);
  }
  WriteSafetensors(path, {tensors.begin(), tensors.end()});
}

void PrintSample(const Json& sample, bool colours, std::ostream& out) {
  out << "sample " << sample["sample"] << ", " << sample["file"].get<std::string>() << ":"
      << sample["line"];
  if (sample["id"] != "")
    out << ", id " << ShownText(sample["id"].dump(-1, ' ', false, Json::error_handler_t::replace));
  out << "\n";
  if (sample.contains("defect")) {
    out << "cannot be used: " << sample["defect"].get<std::string>() << ": "
        << sample["reason"].get<std::string>() << "\n";
    return;
  }
  for (const Json& image : sample["images"]) {
    const bool video = image.contains("frames");
    out << (video ? "video " : "picture ") << ShownText(image["path"].get<std::string>()) << ": ";
    if (video) out << image["frames"] << " frames, ";
    if (image.contains("times")) out << image["times"] << " x ";
    if (image.contains("patches")) {
      out << image["patches"][0] << " x " << image["patches"][1] << " patches, ";
    } else {
      out << image["tiles"] << " tiles, ";
    }
    if (image.contains("pixels")) {
      out << image["pixels"][0] << " x " << image["pixels"][1] << " pixels, ";
    }
    out << image["tokens"] << " tokens\n";
  }
  out << sample["tokens"] << " tokens, " << sample["trained"] << " trained";
  if (sample["truncated"].get<bool>())
    out << ", cut from " << sample["full_tokens"] << " to data.max_tokens";
  out << "\n";
  const std::map<std::string, const char*> escapes = {
      {"trained", "\x1b[1;32m"}, {"image", "\x1b[36m"}, {"context", "\x1b[2m"}};
  for (const Json& segment : sample["segments"]) {
    const std::string kind = segment["kind"].get<std::string>();
    out << (colours ? escapes.at(kind) : "") << "[" << kind << " " << segment["tokens"] << "] ";
    if (segment.contains("image")) {
      out << ShownText(segment["image"].get<std::string>()) << "\n";
    } else {
      out << TerminalText(segment["text"].dump(-1, ' ', false, Json::error_handler_t::replace))
          << "\n";
    }
    if (colours) out << "\x1b[0m";
  }
}

CheckedRecords CheckRecords(const OpenedData& data, int64_t threads,
                            const std::function<void(const Json& defect)>& found) {
  constexpr int64_t kBlock = 256;  // records checked in parallel before results are given in order
  CheckedRecords checked;
  checked.by_defect.resize(static_cast<size_t>(Defect::kEnd));
  for (int64_t begin = 0; begin < data.index.size(); begin += kBlock) {
    const int64_t size = std::min(kBlock, data.index.size() - begin);
    std::vector<Json> lines(static_cast<size_t>(size));
    std::vector<Defect> defects(static_cast<size_t>(size), Defect::kNone);
    std::vector<int64_t> cut(static_cast<size_t>(size), 0);  // tokens before the cut
    ParallelFor(size, threads, [&](int64_t i) {
      const ScannedSample sample = data.dataset.Check(begin + i);
      const auto at = static_cast<size_t>(i);
      defects[at] = sample.defect;
      if (sample.defect != Defect::kNone) {
        lines[at] = DefectLine(data, begin + i, sample);
      } else if (sample.full_tokens > std::ssize(sample.encoded.ids)) {
        cut[at] = sample.full_tokens;
      }
    });
    for (const Defect defect : defects) ++checked.by_defect[static_cast<size_t>(defect)];
    for (const int64_t tokens : cut) {
      if (tokens > 0) ++checked.cut;
      checked.longest = std::max(checked.longest, tokens);
    }
    for (const Json& line : lines) {
      if (!line.is_null()) found(line);
    }
  }
  return checked;
}

}  // namespace equipoise
