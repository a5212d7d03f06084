#include "models/layers/micro_batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>

#include "configs/base/error.h"
#include "parallel/device.h"

namespace equipoise {
namespace {

// A picture, or a tile that is one of its own for the encoder: rows of pixel_values, its load.
struct Picture {
  int64_t rows;
  PictureLoad load;
};

std::vector<Picture> PicturesIn(const MicroBatch& batch, const ImageSpec& images) {
  std::vector<Picture> pictures;
  if (!images.lists_grids()) {
    pictures.assign(static_cast<size_t>(batch.tiles()), {1, images.LoadOfTiles(1)});
    return pictures;
  }
  for (const PatchGrid& grid : GridsOf(batch)) {
    const PictureLoad load = images.LoadOfGrid(grid);
    pictures.push_back({images.has_grids() ? load.patches : images.TilesOf(load.patches), load});
  }
  return pictures;
}

// The first picture of each context rank, and their number: a rank's patches begin where its part
// of all patches does.
std::vector<size_t> FirstPictures(const std::vector<Picture>& pictures, int ranks) {
  double all = 0;
  for (const Picture& picture : pictures) all += static_cast<double>(picture.load.patches);
  std::vector<size_t> firsts(static_cast<size_t>(ranks) + 1, pictures.size());
  double before = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto patches = static_cast<double>(pictures[i].load.patches);
    const double place = (before + patches / 2) / all * ranks;  // of its middle
    const auto rank = static_cast<size_t>(std::clamp<int>(static_cast<int>(place), 0, ranks - 1));
    for (size_t r = 0; r <= rank; ++r) firsts[r] = std::min(firsts[r], i);
    before += patches;
  }
  return firsts;
}

}  // namespace

MicroBatch OnDevice(MicroBatch batch, at::Device device) {
  for (at::Tensor* t :
       {&batch.input_ids, &batch.position_ids, &batch.image_positions, &batch.features.positions}) {
    *t = ToDevice(*t, device);
  }
  return batch;
}

MicroBatch PinnedFor(MicroBatch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  for (at::Tensor* t :
       {&batch.input_ids, &batch.position_ids, &batch.image_positions, &batch.pixel_values}) {
    if (t->defined() && t->numel() > 0) *t = t->pin_memory();
  }
  return batch;
}

std::vector<PatchGrid> GridsOf(const MicroBatch& batch) {
  std::vector<PatchGrid> grids;
  if (!batch.image_grids.defined()) return grids;
  const int64_t* numbers = batch.image_grids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch.image_grids.size(0); ++i) {
    grids.push_back({numbers[2 * i], numbers[2 * i + 1]});
  }
  return grids;
}

at::Tensor GridTensor(const std::vector<PatchGrid>& grids) {
  int64_t times = 0;
  for (const PatchGrid& grid : grids) times += grid.times;
  at::Tensor tensor = at::empty({times, 2}, at::kLong);
  int64_t* numbers = tensor.mutable_data_ptr<int64_t>();
  for (const PatchGrid& grid : grids) {
    for (int64_t time = 0; time < grid.times; ++time) {
      *numbers++ = grid.rows;
      *numbers++ = grid.columns;
    }
  }
  return tensor;
}

MicroBatch ForContextRank(MicroBatch batch, const ImageSpec& images,
                          const ContextParallel& context) {
  const std::vector<Picture> pictures = PicturesIn(batch, images);
  if (pictures.empty()) return batch;
  const std::vector<size_t> firsts = FirstPictures(pictures, context.size);
  const auto self = static_cast<size_t>(context.rank);
  // The rank of each image token's picture, and of the token: both grow from token to token.
  const OwnRows own = RowsOf(context, batch.tokens());
  const int64_t* positions = batch.image_positions.const_data_ptr<int64_t>();
  MicroBatch::Features& features = batch.features;
  features.sent.assign(firsts.size() - 1, 0);
  features.received = features.sent;
  std::vector<int64_t> places;
  int64_t token = 0;
  size_t rank = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    while (i >= firsts[rank + 1]) ++rank;
    for (int64_t n = 0; n < pictures[i].load.image_tokens; ++n, ++token) {
      const auto owner = static_cast<size_t>(positions[token] / own.share);
      if (rank == self) ++features.sent[owner];
      if (owner != self) continue;
      ++features.received[rank];
      places.push_back(positions[token] - own.begin);
    }
  }
  EQUIPOISE_CHECK(token == batch.image_positions.size(0), token, " image tokens of ",
                  batch.image_positions.size(0));
  features.positions = at::empty({std::ssize(places)}, at::kLong);
  std::copy(places.begin(), places.end(), features.positions.mutable_data_ptr<int64_t>());
  const bool none = firsts[self] == firsts[self + 1];
  const size_t first = none ? 0 : firsts[self], end = none ? 1 : firsts[self + 1];
  int64_t begin = 0, rows = 0;
  for (size_t i = 0; i < end; ++i) (i < first ? begin : rows) += pictures[i].rows;
  if (batch.pixel_values.defined()) batch.pixel_values = batch.pixel_values.narrow(0, begin, rows);
  if (batch.image_grids.defined()) {
    batch.image_grids =
        batch.image_grids.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(end - first));
  }
  return batch;
}

PictureLoad PicturesOf(const MicroBatch& batch, const ImageSpec& images) {
  if (!images.lists_grids()) return images.LoadOfTiles(batch.tiles());
  PictureLoad load;
  for (const PatchGrid& grid : GridsOf(batch)) load += images.LoadOfGrid(grid);
  return load;
}

}  // namespace equipoise
