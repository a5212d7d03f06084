#include "models/layers/micro_batch.h"

#include "parallel/device.h"

namespace equipoise {

MicroBatch OnDevice(MicroBatch batch, at::Device device) {
  for (at::Tensor* t : {&batch.input_ids, &batch.position_ids, &batch.image_positions}) {
    *t = ToDevice(*t, device);
  }
  return batch;
}

}  // namespace equipoise
