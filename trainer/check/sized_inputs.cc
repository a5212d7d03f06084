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
constexpr char kVideos[] = "pixel_values_videos", kFrames[] = "frames_per_video";

}  // namespace

SizedInputs::SizedInputs(const SafetensorsReader& file, const ModelConfig& config)
    : images_(ImageSpecOf(config)),
      path_(file.path()),
      pictures_{kSizes, "picture", "image", config.image_token_id, {}, {}},
      videos_{kVideos, "video", "video", config.video_token_id, {}, {}} {
  if (file.Has(kSizes)) ReadSizes(file);
  if (file.Has(kCounts)) ReadCounts(file);
  if (file.Has(kVideos)) ReadVideos(file);
  if (file.Has(kFrames) && !file.Has(kVideos)) Refuse(kVideos, "missing beside frames_per_video");
  if (pictures_.sizes.empty() && !file.Has(kPixels)) return;
  if (!file.Has(kPixels)) Refuse(kPixels, "missing beside image_sizes");
  ReadPixels(file);
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
    pictures_.sizes.push_back({numbers[0], numbers[1]});
  }
}

void SizedInputs::ReadCounts(const SafetensorsReader& file) {
  const at::Tensor all = file.Read(kCounts).to(at::kLong).flatten().contiguous();
  std::vector<PatchGrid>& sizes = pictures_.sizes;
  const auto count = static_cast<int64_t>(sizes.size());
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  auto size = sizes.begin();
  for (int64_t i = 0; i < all.size(0); ++i) {
    const int64_t pictures = numbers[i];
    if (pictures < 0 || pictures > sizes.end() - size) {
      Refuse(kCounts, fmt::format("does not sum to the {} pictures of {}", count, kSizes));
    }
    if (pictures > 1) std::fill_n(size, pictures, OnlySquare(images_));
    size += pictures;
  }
  if (size != sizes.end()) {
    Refuse(kCounts, fmt::format("does not sum to the {} pictures of {}", count, kSizes));
  }
}

void SizedInputs::ReadPixels(const SafetensorsReader& file) {
  std::vector<int64_t> tiles;
  for (const PatchGrid& size : pictures_.sizes) tiles.push_back(PartsOf(images_, size).tiles);
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
  pictures_.pixels = pixels;
}

void SizedInputs::ReadVideos(const SafetensorsReader& file) {
  at::Tensor pixels = file.Read(kVideos).to(at::kFloat);
  const std::vector<int64_t> shape = pixels.sizes().vec();
  std::vector<int64_t> frames;
  if (file.Has(kFrames)) {
    const at::Tensor all = file.Read(kFrames).to(at::kLong).flatten().contiguous();
    const int64_t* numbers = all.const_data_ptr<int64_t>();
    frames.assign(numbers, numbers + all.size(0));
  } else if (pixels.dim() == 5) {
    frames.assign(static_cast<size_t>(pixels.size(0)), pixels.size(1));
    pixels = pixels.flatten(0, 1);
  }
  int64_t all = 0;
  for (const int64_t count : frames) {
    if (count < 1 || count > pixels.numel())
      Refuse(kFrames, fmt::format("{} is no number of frames", count));
    videos_.sizes.push_back(VideoOfFrames(count));
    all += count;
  }
  const int64_t side = images_.tile_size;
  if (pixels.sizes() != at::IntArrayRef({all, 3, side, side})) {
    Refuse(kVideos, fmt::format("has the shape [{}], not [videos, frames, 3, {}, {}], nor with "
                                "frames_per_video [frames of all, 3, {}, {}]",
                                fmt::join(shape, ", "), side, side, side, side));
  }
  videos_.pixels = pixels;
}

int64_t SizedInputs::PicturesIn(int64_t begin, int64_t end) const {
  int64_t count = 0;
  for (const int64_t at : begins_) count += begin <= at && at < end ? 1 : 0;
  return count;
}

void SizedInputs::Finish() const {
  for (const Stack* stack : {&pictures_, &videos_}) {
    const size_t left = stack->sizes.size() - stack->next;
    if (left == 0) continue;
    Refuse(stack->name, fmt::format("{} {}s have no tokens in input_ids", left, stack->word));
  }
}

PatchGrid SizedInputs::Take(Stack& stack, int64_t row) const {
  if (stack.next == stack.sizes.size()) {
    Refuse(stack.name, fmt::format("has {} {}s, too few for the {} tokens of row {}",
                                   stack.sizes.size(), stack.word, stack.token_word, row));
  }
  return stack.sizes[stack.next++];
}

void SizedInputs::AddTo(int64_t row, MicroBatch* batch) {
  at::Tensor shown = batch->input_ids.eq(pictures_.token);
  if (videos_.token >= 0) shown = shown.logical_or(batch->input_ids.eq(videos_.token));
  const at::Tensor at = shown.nonzero().squeeze(1).contiguous();
  const int64_t *ids = batch->input_ids.const_data_ptr<int64_t>(),
                *places = at.const_data_ptr<int64_t>();
  begins_.clear();
  std::vector<PatchGrid> sizes;
  std::vector<at::Tensor> pixels;
  for (int64_t token = 0; token < at.size(0);) {
    Stack& stack = ids[places[token]] == pictures_.token ? pictures_ : videos_;
    sizes.push_back(Take(stack, row));
    const PictureParts parts = PartsOf(images_, sizes.back());
    int64_t own = 0;
    while (own < parts.tokens && token + own < at.size(0) &&
           ids[places[token + own]] == stack.token) {
      ++own;
    }
    if (own < parts.tokens) {
      Refuse("input_ids", fmt::format("row {} has {} {} tokens for a {} that has {}", row, own,
                                      stack.token_word, stack.word, parts.tokens));
    }
    if (&stack == &pictures_) begins_.push_back(places[token]);
    pixels.push_back(stack.pixels.narrow(0, stack.next_tile, parts.tiles));
    stack.next_tile += parts.tiles;
    token += parts.tokens;
  }
  if (sizes.empty()) return;
  batch->image_grids = GridTensor(sizes);
  batch->image_positions = at;
  batch->pixel_values = at::cat(pixels);
}

}  // namespace equipoise
