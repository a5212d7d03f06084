#include "trainer/check/sized_inputs.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/spec/any_resolution.h"

namespace equipoise {
namespace {

constexpr char kSizes[] = "image_sizes", kPixels[] = "pixel_values";
constexpr char kCounts[] = "batch_num_images";

}  // namespace

SizedInputs::SizedInputs(const SafetensorsReader& file, const ModelConfig& config)
    : image_token_(config.image_token_id),
      video_token_(config.video_token_id),
      images_(ImageSpecOf(config)),
      path_(file.path()) {
  if (file.Has(kSizes)) ReadSizes(file);
  if (file.Has(kCounts)) ReadCounts(file);
  if (sizes_.empty() && !file.Has(kPixels)) return;
  if (!file.Has(kPixels)) Refuse(kPixels, "missing beside image_sizes");
  std::vector<int64_t> tiles;
  for (const PatchGrid& size : sizes_) tiles.push_back(PartsOf(images_, size).tiles);
  ReadPixels(file, tiles);
}

void SizedInputs::Refuse(const std::string& tensor, const std::string& what) const {
  throw DataError(fmt::format("{}: {}: {}", path_, tensor, what));
}

void SizedInputs::ReadSizes(const SafetensorsReader& file) {
  const at::Tensor all = file.Read(kSizes).to(at::kLong).contiguous();
  if (all.dim() != 2 || all.size(1) != 2) Refuse(kSizes, "is not [pictures, 2]");
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < all.size(0); ++i, numbers += 2) {
    if (numbers[0] < 1 || numbers[1] < 1) {
      Refuse(kSizes,
             fmt::format("{} x {} is no height and width in pixels", numbers[0], numbers[1]));
    }
    sizes_.push_back({numbers[0], numbers[1]});
  }
}

void SizedInputs::ReadCounts(const SafetensorsReader& file) {
  const at::Tensor all = file.Read(kCounts).to(at::kLong).flatten().contiguous();
  const auto count = static_cast<int64_t>(sizes_.size());
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  auto size = sizes_.begin();
  for (int64_t i = 0; i < all.size(0); ++i) {
    const int64_t pictures = numbers[i];
    if (pictures < 0 || pictures > sizes_.end() - size) {
      Refuse(kCounts, fmt::format("does not sum to the {} pictures of {}", count, kSizes));
    }
    if (pictures > 1) std::fill_n(size, pictures, OnlySquare(images_));
    size += pictures;
  }
  if (size != sizes_.end()) {
    Refuse(kCounts, fmt::format("does not sum to the {} pictures of {}", count, kSizes));
  }
}

void SizedInputs::ReadPixels(const SafetensorsReader& file, const std::vector<int64_t>& tiles) {
  at::Tensor pixels = file.Read(kPixels).to(at::kFloat);
  const int64_t all = std::accumulate(tiles.begin(), tiles.end(), int64_t{0});
  const int64_t side = images_.tile_size;
  const auto refuse = [&] {
    Refuse(kPixels, fmt::format("has the shape [{}], not [{}, 3, {}, {}], the tiles of image_sizes",
                                fmt::join(pixels.sizes(), ", "), all, side, side));
  };
  if (pixels.dim() == 5 && pixels.size(0) == std::ssize(tiles)) {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < tiles.size(); ++i) {
      if (pixels.size(1) < tiles[i]) refuse();
      parts.push_back(pixels.select(0, static_cast<int64_t>(i)).narrow(0, 0, tiles[i]));
    }
    if (!parts.empty()) pixels = at::cat(parts);
  }
  if (pixels.sizes() != at::IntArrayRef({all, 3, side, side})) refuse();
  pixels_ = pixels;
}

int64_t SizedInputs::PicturesIn(int64_t begin, int64_t end) const {
  int64_t count = 0;
  for (const int64_t at : begins_) count += begin <= at && at < end ? 1 : 0;
  return count;
}

void SizedInputs::AddTo(int64_t row, MicroBatch* batch) {
  if (video_token_ >= 0 && batch->input_ids.eq(video_token_).any().item<bool>()) {
    Refuse("input_ids", fmt::format("row {} has the token of a video, {}; videos are not supported",
                                    row, video_token_));
  }
  const at::Tensor at = batch->input_ids.eq(image_token_).nonzero().squeeze(1);
  begins_.clear();
  std::vector<PatchGrid> sizes;
  int64_t tiles = 0;
  for (int64_t token = 0; token < at.size(0); ++next_) {
    if (next_ == sizes_.size()) {
      Refuse(kSizes, fmt::format("has {} pictures, too few for the image tokens of row {}",
                                 sizes_.size(), row));
    }
    const PictureParts parts = PartsOf(images_, sizes_[next_]);
    if (token + parts.tokens > at.size(0)) {
      Refuse("input_ids", fmt::format("row {} has {} image tokens for a picture that has {}", row,
                                      at.size(0) - token, parts.tokens));
    }
    begins_.push_back(at[token].item<int64_t>());
    sizes.push_back(sizes_[next_]);
    tiles += parts.tiles;
    token += parts.tokens;
  }
  if (sizes.empty()) return;
  batch->image_grids = GridTensor(sizes);
  batch->image_positions = at.contiguous();
  batch->pixel_values = pixels_.narrow(0, next_tile_, tiles);
  next_tile_ += tiles;
}

}  // namespace equipoise
