#include "data/images/image_processor.h"

#include "configs/base/error.h"
#include "data/images/image_grid.h"

namespace equipoise {

PictureLoad ImageProcessor::Measure(ImageSize size, int64_t pictures) const {
  EQUIPOISE_CHECK(spec_.takes_pictures(), "the model takes no pictures");
  if (spec_.kind == ImageSpec::Kind::kSquare) return spec_.LoadOfTiles(1);
  return spec_.LoadOfTiles(CountTiles(size, tiles_, pictures, spec_.tile_size));
}

}  // namespace equipoise
