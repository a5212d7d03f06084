#include "data/loading/loader.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "data/images/image_processor.h"
#include "data/records/annotation_file.h"
#include "data/videos/record_images.h"
#include "models/spec/any_resolution.h"
#include "models/spec/grid_positions.h"

namespace equipoise {
namespace {

at::Tensor Int64Tensor(int64_t size) { return at::empty({size}, at::kLong); }

}  // namespace

struct Dataset::Impl {
  std::vector<AnnotationFile> files;
  SampleScanner scanner;
  const CostIndex* index;
  const ChatTemplate* chat_template;
  LossWeight loss;

  Impl(const std::vector<SourceConfig>& sources, SampleOptions options, const CostIndex* costs,
       const ChatTemplate* chat, LossWeight weight)
      : scanner(sources, options, chat), index(costs), chat_template(chat), loss(weight) {
    for (const SourceConfig& source : sources) files.emplace_back(source.annotations);
  }

  ScannedSample Scan(int64_t sample, std::vector<std::string>* pictures) const;
  std::string Decode(const ScannedSample& scanned, const std::vector<std::string>& pictures,
                     uint8_t* pixels) const;
};

namespace {

// Fills one micro-batch sample by sample.
class BatchWriter {
 public:
  BatchWriter(const Pack& pack, const ImageSpec& images, LossWeight loss, bool pictures);

  // Pixels of the sample to be written next; null without pictures.
  uint8_t* pixels() const { return pixels_ == nullptr ? nullptr : pixels_ + pixel_; }
  void Write(const ScannedSample& sample, LoadedPack& loaded);
  // Writes a sample that cannot be used in its planned shape: blank pictures at its beginning, no
  // targets.
  void WriteBlank(const SampleCost& cost, int32_t image_token, int32_t text_token);
  MicroBatch Finish();

 private:
  // The first tokens of a sample's pictures, and their grids where ImageSpec::lists_grids().
  struct Places {
    std::vector<int64_t> begins;
    std::vector<PatchGrid> grids;
  };
  // Ends a sample of `tokens` written tokens, with padding where the pack is padded.
  void Close(int64_t tokens, const PictureLoad& pictures, const Places& places);
  void WritePositions(int64_t tokens, const Places& places);
  void PlaceImage(int64_t begin, int64_t image_tokens);
  int64_t PixelsOf(const PictureLoad& pictures) const {
    if (images_.has_grids()) return pictures.patches * images_.patch_numbers();
    return images_.TilesOf(pictures.patches) * tile_pixels_;
  }

  const ImageSpec& images_;
  LossWeight loss_;
  MicroBatch batch_;
  int64_t *ids_, *targets_, *positions_, *image_positions_ = nullptr;
  int64_t padded_to_ = 0;  // tokens of each sample at least
  float* weights_ = nullptr;
  uint8_t* pixels_ = nullptr;
  int64_t tile_pixels_ = 0;                          // of three channels
  std::vector<PatchGrid> grids_;                     // of all pictures so far
  int64_t token_ = 0, pixel_ = 0, image_token_ = 0;  // written so far
};

BatchWriter::BatchWriter(const Pack& pack, const ImageSpec& images, LossWeight loss, bool pictures)
    : images_(images), loss_(loss), tile_pixels_(3 * images.tile_size * images.tile_size) {
  batch_.input_ids = Int64Tensor(pack.row_tokens);
  batch_.targets = Int64Tensor(pack.row_tokens);
  batch_.position_ids = images.has_grids() ? at::empty({3, pack.row_tokens}, at::kLong)
                                           : Int64Tensor(pack.row_tokens);
  if (pack.row_tokens > pack.tokens) padded_to_ = pack.longest;
  batch_.planned_targets = pack.trained;
  batch_.samples = pack.samples;
  batch_.cu_seqlens.push_back(0);
  ids_ = batch_.input_ids.data_ptr<int64_t>();
  targets_ = batch_.targets.data_ptr<int64_t>();
  positions_ = batch_.position_ids.data_ptr<int64_t>();
  if (loss != LossWeight::kToken) {
    batch_.target_weights = at::empty({pack.row_tokens}, at::kFloat);
    weights_ = batch_.target_weights.data_ptr<float>();
    std::fill_n(weights_, pack.row_tokens, 0.0F);
  }
  if (pack.pictures.image_tokens > 0) {
    batch_.image_positions = Int64Tensor(pack.pictures.image_tokens);
    image_positions_ = batch_.image_positions.data_ptr<int64_t>();
  }
  if (pack.pictures.patches > 0 && pictures) {
    const int64_t tiles = images.TilesOf(pack.pictures.patches), side = images.tile_size;
    batch_.pixel_values =
        images.has_grids() ? at::empty({pack.pictures.patches, images.patch_numbers()}, at::kByte)
                           : at::empty({tiles, 3, side, side}, at::kByte);
    pixels_ = batch_.pixel_values.data_ptr<uint8_t>();
  }
}

void BatchWriter::PlaceImage(int64_t begin, int64_t image_tokens) {
  for (int64_t i = 0; i < image_tokens; ++i) {
    image_positions_[image_token_++] = token_ + begin + i;
  }
}

void BatchWriter::WritePositions(int64_t tokens, const Places& places) {
  grids_.insert(grids_.end(), places.grids.begin(), places.grids.end());
  if (!images_.has_grids()) {
    for (int64_t i = 0; i < tokens; ++i) positions_[token_ + i] = i;
    return;
  }
  const int64_t all = batch_.input_ids.size(0);
  int64_t* first = positions_ + token_;
  WriteGridPositions(TokenGrids(places.begins, places.grids, images_.merge), tokens,
                     {first, first + all, first + 2 * all});
}

void BatchWriter::Close(int64_t tokens, const PictureLoad& pictures, const Places& places) {
  const int64_t row = std::max(tokens, padded_to_);
  WritePositions(row, places);
  // Padding follows the sample: causal attention hides it from the sample's tokens.
  std::fill_n(ids_ + token_ + tokens, row - tokens, 0);
  std::fill_n(targets_ + token_ + tokens, row - tokens, kNoTarget);
  token_ += row;
  pixel_ += PixelsOf(pictures);
  batch_.cu_seqlens.push_back(token_);
}

void BatchWriter::Write(const ScannedSample& sample, LoadedPack& loaded) {
  const auto tokens = static_cast<int64_t>(sample.encoded.ids.size());
  const double weight = TargetWeight(loss_, sample.trained);
  for (int64_t i = 0; i < tokens; ++i) {
    const auto at = static_cast<size_t>(i);
    ids_[token_ + i] = sample.encoded.ids[at];
    const bool has_target = i + 1 < tokens && sample.encoded.trained[at + 1] != 0;
    targets_[token_ + i] = has_target ? sample.encoded.ids[at + 1] : kNoTarget;
    if (weights_ != nullptr && has_target) weights_[token_ + i] = static_cast<float>(weight);
  }
  for (size_t i = 0; i < sample.pictures.size(); ++i)
    PlaceImage(sample.encoded.image_begin[i], sample.pictures[i].image_tokens);
  loaded.targets += sample.trained;
  loaded.weight += weight * static_cast<double>(sample.trained);
  Close(tokens, sample.all_pictures(), {sample.encoded.image_begin, sample.grids});
}

void BatchWriter::WriteBlank(const SampleCost& cost, int32_t image_token, int32_t text_token) {
  const int64_t image_tokens = cost.image_tokens;
  std::fill_n(ids_ + token_, image_tokens, image_token);
  std::fill_n(ids_ + token_ + image_tokens, cost.tokens - image_tokens, text_token);
  std::fill_n(targets_ + token_, cost.tokens, kNoTarget);
  if (pixels_ != nullptr) std::fill_n(pixels(), PixelsOf(cost.pictures()), uint8_t{0});
  PlaceImage(0, image_tokens);
  Places places;
  if (images_.kind == ImageSpec::Kind::kAnyRes && cost.patches > 0) {
    places.grids = {BlankPicture(images_.TilesOf(cost.patches), image_tokens)};
  }
  if (images_.has_grids()) {
    int64_t begin = 0;
    for (const PatchGrid& grid : images_.GridsOfTiles(images_.TilesOf(cost.patches))) {
      places.begins.push_back(begin);
      places.grids.push_back(grid);
      begin += images_.TilesOf(grid.patches());
    }
  }
  Close(cost.tokens, cost.pictures(), places);
}

MicroBatch BatchWriter::Finish() {
  EQUIPOISE_CHECK(token_ == batch_.input_ids.size(0), "tokens ", token_);
  if (!grids_.empty()) batch_.image_grids = GridTensor(grids_);
  return std::move(batch_);
}

// The difference between a sample and its entry in the cost index; empty where there is none.
std::string ShapeChange(const SampleCost& cost, const ScannedSample& sample,
                        const ImageSpec& images) {
  const auto tokens = static_cast<int64_t>(sample.encoded.ids.size());
  const PictureLoad pictures = sample.all_pictures();
  if (tokens == cost.tokens && pictures == cost.pictures() && sample.trained == cost.trained)
    return "";
  return fmt::format(
      "changed since the cost index was made: {} tokens, {} {}, planned {}, {}; "
      "`equipoise data CONFIG index` measures anew",
      tokens, images.TilesOf(pictures.patches), images.tile_word(), cost.tokens,
      images.TilesOf(cost.patches));
}

}  // namespace

Dataset::Dataset(const std::vector<SourceConfig>& sources, SampleOptions options,
                 const CostIndex* index, const ChatTemplate* chat_template, LossWeight loss)
    : impl_(std::make_unique<Impl>(sources, options, index, chat_template, loss)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;

const CostIndex& Dataset::index() const { return *impl_->index; }

ScannedSample Dataset::Impl::Scan(int64_t sample, std::vector<std::string>* pictures) const {
  const SampleCost& cost = (*index)[sample];
  const int64_t longest = scanner.options().limits.record_bytes;
  return scanner.Scan(cost.source, files[cost.source].Record(cost.offset, cost.bytes, longest),
                      pictures);
}

// Decodes into `pixels` (room for all pictures of the sample), or nowhere when it is null. Returns
// the fault of the first picture that cannot be decoded; empty where there is none.
std::string Dataset::Impl::Decode(const ScannedSample& scanned,
                                  const std::vector<std::string>& pictures, uint8_t* pixels) const {
  const SampleOptions& options = scanner.options();
  const ImageLimits limits{options.limits.image_pixels, options.limits.image_bytes};
  const ImageProcessor& processor = scanner.processor(scanned.source);
  const Record& record = scanned.record;
  RecordImages images(record, {pictures.begin(), pictures.end()}, limits);
  size_t file = 0;
  const auto decode = [&] { return images.Decode(file); };
  try {
    for (size_t i = 0; file < pictures.size(); ++file) {
      if (pixels == nullptr) {
        decode();
        continue;
      }
      const Video* video = record.VideoOf(file);
      at::Tensor made;
      if (video != nullptr) {
        const auto frame = [&](size_t number) {
          file = video->first + number;
          return decode();
        };
        made = processor.Make(images.SizeOf(file), *video, frame);
      } else {
        made = processor.Make(decode(), record.SharingTiles(file));
      }
      const int64_t patches = scanned.pictures[i++].patches;
      EQUIPOISE_CHECK(
          made.size(0) == (options.images.has_grids() ? patches : options.images.TilesOf(patches)),
          "tiles of ", record.images[file]);
      std::memcpy(pixels, made.const_data_ptr<uint8_t>(), made.nbytes());
      pixels += made.numel();
    }
  } catch (const ImageError& error) {
    return ShownText(record.images[file]) + ": " + ShownText(error.what());
  }
  return "";
}

const ImageProcessor& Dataset::processor(size_t source) const {
  return impl_->scanner.processor(source);
}

ScannedSample Dataset::Scan(int64_t sample, std::vector<std::string>* files) const {
  return impl_->Scan(sample, files);
}

ScannedSample Dataset::Check(int64_t sample) const {
  std::vector<std::string> pictures;
  ScannedSample scanned = impl_->Scan(sample, &pictures);
  if (scanned.defect != Defect::kNone) return scanned;
  scanned.reason = impl_->Decode(scanned, pictures, nullptr);
  if (!scanned.reason.empty()) scanned.defect = Defect::kImageDamaged;
  return scanned;
}

BadSample Dataset::Locate(int64_t sample, const std::string& id, const std::string& reason) const {
  const SampleCost& cost = (*impl_->index)[sample];
  return {sample, impl_->files[cost.source].file().path, cost.line, id, reason};
}

LoadedPack Dataset::Load(const Pack& pack, bool pictures, const SampleFaults& known) const {
  LoadedPack loaded;
  const ImageSpec& images = impl_->scanner.options().images;
  BatchWriter writer(pack, images, impl_->loss, pictures);
  loaded.faults = known;
  loaded.faults.resize(pack.samples.size());
  for (size_t i = 0; i < pack.samples.size(); ++i) {
    const int64_t sample = pack.samples[i];
    const SampleCost& cost = index()[sample];
    std::vector<std::string> files;
    const ScannedSample scanned = impl_->Scan(sample, pictures ? &files : nullptr);
    std::string& reason = loaded.faults[i];
    if (reason.empty()) reason = scanned.reason;
    if (reason.empty()) reason = ShapeChange(cost, scanned, images);
    if (reason.empty() && pictures) reason = impl_->Decode(scanned, files, writer.pixels());
    if (reason.empty()) {
      writer.Write(scanned, loaded);
    } else {
      writer.WriteBlank(cost, impl_->chat_template->image_token(),
                        std::max(impl_->chat_template->end_of_turn(), 0));
      loaded.bad.push_back(Locate(sample, scanned.record.id, reason));
    }
  }
  loaded.batch = writer.Finish();
  return loaded;
}

}  // namespace equipoise
