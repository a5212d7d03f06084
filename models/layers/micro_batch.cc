#include "models/layers/micro_batch.h"

#include <ATen/ops/empty.h>

#include "parallel/device.h"

namespace equipoise {

MicroBatch OnDevice(MicroBatch batch, at::Device device) {
  for (at::Tensor* t : {&batch.input_ids, &batch.position_ids, &batch.image_positions}) {
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
  at::Tensor tensor = at::empty({static_cast<int64_t>(grids.size()), 2}, at::kLong);
  int64_t* numbers = tensor.mutable_data_ptr<int64_t>();
  for (const PatchGrid& grid : grids) {
    *numbers++ = grid.rows;
    *numbers++ = grid.columns;
  }
  return tensor;
}

PictureLoad PicturesOf(const MicroBatch& batch, const ImageSpec& images) {
  if (!images.lists_grids()) return images.LoadOfTiles(batch.tiles());
  PictureLoad load;
  for (const PatchGrid& grid : GridsOf(batch)) load += images.LoadOfGrid(grid);
  return load;
}

}  // namespace equipoise
