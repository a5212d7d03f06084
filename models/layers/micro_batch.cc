#include "models/layers/micro_batch.h"

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

}  // namespace equipoise
