#include "trainer/check/grid_inputs.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/spec/grid_positions.h"

namespace equipoise {

GridInputs::GridInputs(const SafetensorsReader& file, const ModelConfig& config)
    : config_(config), images_(ImageSpecOf(config)), path_(file.path()) {
  if (file.Has("position_ids")) {
    positions_ = file.Read("position_ids").to(at::kLong);
    const auto ids = file.Read("input_ids").sizes().vec();
    if (ids.size() != 2 || positions_.sizes() != at::IntArrayRef({3, ids[0], ids[1]})) {
      Refuse("position_ids",
             fmt::format("has the shape [{}], not [3, B, T]", fmt::join(positions_.sizes(), ", ")));
    }
  }
  if (file.Has("image_grid_thw")) ReadGrids(file);
  int64_t patches = 0;
  for (const PatchGrid& grid : grids_) patches += grid.patches();
  if (file.Has("pixel_values")) pixels_ = file.Read("pixel_values").to(at::kFloat);
  if (patches == 0 && !pixels_.defined()) return;
  if (!pixels_.defined()) Refuse("pixel_values", "missing beside image_grid_thw");
  if (pixels_.sizes() != at::IntArrayRef({patches, images_.patch_numbers()})) {
    Refuse("pixel_values",
           fmt::format("has the shape [{}], not [{}, {}], the patches of "
                       "image_grid_thw",
                       fmt::join(pixels_.sizes(), ", "), patches, images_.patch_numbers()));
  }
}

void GridInputs::Refuse(const std::string& tensor, const std::string& what) const {
  throw DataError(fmt::format("{}: {}: {}", path_, tensor, what));
}

void GridInputs::ReadGrids(const SafetensorsReader& file) {
  const at::Tensor all = file.Read("image_grid_thw").to(at::kLong).contiguous();
  if (all.dim() != 2 || all.size(1) != 3) Refuse("image_grid_thw", "is not [pictures, 3]");
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < all.size(0); ++i, numbers += 3) {
    const PatchGrid grid{numbers[1], numbers[2]};
    if (numbers[0] != 1) Refuse("image_grid_thw", "has a video; only pictures, of one time, are");
    if (grid.rows < 1 || grid.columns < 1 || grid.rows % images_.merge != 0 ||
        grid.columns % images_.merge != 0) {
      Refuse("image_grid_thw", fmt::format("{} x {} patches are not whole squares of {}", grid.rows,
                                           grid.columns, images_.merge));
    }
    grids_.push_back(grid);
  }
}

int64_t GridInputs::PicturesIn(int64_t begin, int64_t end) const {
  int64_t count = 0;
  for (const int64_t at : begins_) count += begin <= at && at < end ? 1 : 0;
  return count;
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
    for (; picture < begins_.size() && begins_[picture] < end; ++picture) {
      begins.push_back(begins_[picture] - begin);
      inside.push_back(grids[picture]);
    }
    int64_t* first = positions.mutable_data_ptr<int64_t>() + begin;
    WriteGridPositions(TokenGrids(begins, inside, images_.merge), end - begin,
                       {first, first + tokens, first + 2 * tokens});
  }
  return positions;
}

void GridInputs::AddTo(int64_t row, int64_t first, MicroBatch* batch) {
  const int64_t* ids = batch->input_ids.const_data_ptr<int64_t>();
  const at::Tensor at = batch->input_ids.eq(config_.image_token_id).nonzero().squeeze(1);
  const auto holds_video = batch->input_ids.eq(config_.video_token_id).any().item<bool>();
  if (holds_video) {
    Refuse("input_ids", fmt::format("row {} has the token of a video, {}; videos are not supported",
                                    row, config_.video_token_id));
  }
  begins_.clear();
  std::vector<PatchGrid> grids;
  int64_t patches = 0;
  for (int64_t token = 0; token < at.size(0); ++next_) {
    if (next_ == grids_.size()) {
      Refuse("image_grid_thw",
             fmt::format("has {} pictures, too few for the image tokens of row {}", grids_.size(),
                         row));
    }
    const PatchGrid& grid = grids_[next_];
    const int64_t begin = at[token].item<int64_t>(), count = images_.TilesOf(grid.patches());
    for (int64_t i = 0; i < count; ++i) {
      if (begin + i < batch->tokens() && ids[begin + i] == config_.image_token_id) continue;
      Refuse("input_ids", fmt::format("row {} has {} image tokens in a run for the {} of a picture",
                                      row, i, count));
    }
    begins_.push_back(begin);
    grids.push_back(grid);
    patches += grid.patches();
    token += count;
  }
  batch->position_ids =
      positions_.defined()
          ? positions_.select(1, row).narrow(1, first, batch->tokens()).contiguous()
          : PositionsOf(*batch, grids);
  if (grids.empty()) return;
  batch->image_grids = GridTensor(grids);
  batch->image_positions = at.contiguous();
  batch->pixel_values = pixels_.narrow(0, next_patch_, patches);
  next_patch_ += patches;
}

}  // namespace equipoise
