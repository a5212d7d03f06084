#include "trainer/check/grid_inputs.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/spec/grid_positions.h"

namespace equipoise {
namespace {

constexpr char kSeconds[] = "second_per_grid_ts";

}  // namespace

GridInputs::GridInputs(const SafetensorsReader& file, const ModelConfig& config)
    : config_(config),
      images_(ImageSpecOf(config)),
      path_(file.path()),
      pictures_{"pixel_values", "image_grid_thw", "pictures", config.image_token_id, {}, {}},
      videos_{"pixel_values_videos", "video_grid_thw", "videos", config.video_token_id, {}, {}} {
  if (file.Has("position_ids")) {
    positions_ = file.Read("position_ids").to(at::kLong);
    const auto ids = file.Read("input_ids").sizes().vec();
    if (ids.size() != 2 || positions_.sizes() != at::IntArrayRef({3, ids[0], ids[1]})) {
      Refuse("position_ids",
             fmt::format("has the shape [{}], not [3, B, T]", fmt::join(positions_.sizes(), ", ")));
    }
  }
  Read(file, pictures_);
  Read(file, videos_);
}

void GridInputs::Refuse(const std::string& tensor, const std::string& what) const {
  throw DataError(fmt::format("{}: {}: {}", path_, tensor, what));
}

void GridInputs::Read(const SafetensorsReader& file, Stack& stack) const {
  if (file.Has(stack.grids_name)) ReadGrids(file, stack);
  int64_t patches = 0;
  for (const PatchGrid& grid : stack.grids) patches += grid.patches();
  if (file.Has(stack.pixels_name)) stack.pixels = file.Read(stack.pixels_name).to(at::kFloat);
  if (patches == 0 && !stack.pixels.defined()) return;
  if (!stack.pixels.defined()) {
    Refuse(stack.pixels_name, fmt::format("missing beside {}", stack.grids_name));
  }
  if (stack.pixels.sizes() != at::IntArrayRef({patches, images_.patch_numbers()})) {
    Refuse(stack.pixels_name, fmt::format("has the shape [{}], not [{}, {}], the patches of {}",
                                          fmt::join(stack.pixels.sizes(), ", "), patches,
                                          images_.patch_numbers(), stack.grids_name));
  }
}

void GridInputs::ReadGrids(const SafetensorsReader& file, Stack& stack) const {
  const at::Tensor all = file.Read(stack.grids_name).to(at::kLong).contiguous();
  if (all.dim() != 2 || all.size(1) != 3) {
    Refuse(stack.grids_name, fmt::format("is not [{}, 3]", stack.word));
  }
  const bool videos = &stack == &videos_;
  std::vector<float> seconds(static_cast<size_t>(all.size(0)), 1.0F);
  if (videos && file.Has(kSeconds)) {
    const at::Tensor given = file.Read(kSeconds).to(at::kFloat).flatten().contiguous();
    if (given.size(0) != all.size(0)) {
      Refuse(kSeconds, fmt::format("has {} numbers for {} videos", given.size(0), all.size(0)));
    }
    std::copy_n(given.const_data_ptr<float>(), all.size(0), seconds.begin());
  }
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < all.size(0); ++i, numbers += 3) {
    PatchGrid grid{numbers[1], numbers[2], numbers[0]};
    if (grid.times < 1 || (!videos && grid.times > 1)) {
      Refuse(stack.grids_name,
             fmt::format("has {} of {} times{}", stack.word, grid.times,
                         videos ? "" : "; those of videos stand in video_grid_thw"));
    }
    if (grid.rows < 1 || grid.columns < 1 || grid.rows % images_.merge != 0 ||
        grid.columns % images_.merge != 0) {
      Refuse(stack.grids_name, fmt::format("{} x {} patches are not whole squares of {}", grid.rows,
                                           grid.columns, images_.merge));
    }
    if (videos && images_.videos.positions_per_second > 0) {
      grid.time_step =
          static_cast<float>(images_.videos.positions_per_second) * seconds[static_cast<size_t>(i)];
    }
    const int64_t parts = images_.videos.timestamps ? grid.times : 1;
    grid.times /= parts;
    stack.grids.insert(stack.grids.end(), static_cast<size_t>(parts), grid);
  }
}

int64_t GridInputs::PicturesIn(int64_t begin, int64_t end) const {
  int64_t count = 0;
  for (const Begin& at : begins_) {
    count += !at.video && begin <= at.token && at.token < end ? 1 : 0;
  }
  return count;
}

void GridInputs::Finish() const {
  for (const Stack* stack : {&pictures_, &videos_}) {
    const size_t left = stack->grids.size() - stack->next;
    if (left == 0) continue;
    Refuse(stack->grids_name, fmt::format("{} {} have no tokens in input_ids", left, stack->word));
  }
}

at::Tensor GridInputs::PositionsOf(const MicroBatch& batch,
                                   const std::vector<PatchGrid>& grids) const {
  const int64_t tokens = batch.tokens();
  at::Tensor positions = at::empty({3, tokens}, at::kLong);
  size_t picture = 0;
  for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const int64_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    std::vector<int64_t> begins;
    std::vector<PatchGrid> inside;
    for (; picture < begins_.size() && begins_[picture].token < end; ++picture) {
      begins.push_back(begins_[picture].token - begin);
      inside.push_back(grids[picture]);
    }
    int64_t* first = positions.mutable_data_ptr<int64_t>() + begin;
    WriteGridPositions(TokenGrids(begins, inside, images_.merge), end - begin,
                       {first, first + tokens, first + 2 * tokens});
  }
  return positions;
}

PatchGrid GridInputs::Take(Stack& stack, const MicroBatch& batch, int64_t begin,
                           int64_t row) const {
  if (stack.next == stack.grids.size()) {
    Refuse(stack.grids_name, fmt::format("has {} {}, too few for their tokens in row {}",
                                         stack.grids.size(), stack.word, row));
  }
  const PatchGrid& grid = stack.grids[stack.next++];
  const int64_t* ids = batch.input_ids.const_data_ptr<int64_t>();
  const int64_t count = images_.TilesOf(grid.patches());
  for (int64_t i = 0; i < count; ++i) {
    if (begin + i < batch.tokens() && ids[begin + i] == stack.token) continue;
    Refuse("input_ids", fmt::format("row {} has {} tokens {} in a run for the {} that one of the "
                                    "{} has",
                                    row, i, stack.token, count, stack.word));
  }
  return grid;
}

void GridInputs::AddTo(int64_t row, int64_t first, MicroBatch* batch) {
  const int64_t* ids = batch->input_ids.const_data_ptr<int64_t>();
  begins_.clear();
  std::vector<PatchGrid> grids;
  std::vector<at::Tensor> pixels;
  for (int64_t token = 0; token < batch->tokens();) {
    const bool video = ids[token] == videos_.token;
    if (!video && ids[token] != pictures_.token) {
      ++token;
      continue;
    }
    Stack& stack = video ? videos_ : pictures_;
    grids.push_back(Take(stack, *batch, token, row));
    begins_.push_back({token, video});
    const int64_t patches = grids.back().patches();
    pixels.push_back(stack.pixels.narrow(0, stack.next_patch, patches));
    stack.next_patch += patches;
    token += images_.TilesOf(patches);
  }
  batch->position_ids =
      positions_.defined()
          ? positions_.select(1, row).narrow(1, first, batch->tokens()).contiguous()
          : PositionsOf(*batch, grids);
  if (grids.empty()) return;
  batch->image_grids = GridTensor(grids);
  batch->image_positions = batch->input_ids.eq(pictures_.token)
                               .logical_or(batch->input_ids.eq(videos_.token))
                               .nonzero()
                               .squeeze(1)
                               .contiguous();
  batch->pixel_values = at::cat(pixels);
}

}  // namespace equipoise
