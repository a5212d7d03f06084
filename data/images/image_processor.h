#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/images/image_size.h"
#include "data/settings/data_config.h"
#include "data/text/conversation.h"
#include "models/spec/image_spec.h"

namespace at {
class Tensor;
}

namespace equipoise {

// Processor of pictures for a model's encoder: their load, from their size alone, and the encoder's
// input. The pictures of a record share its tiles: each may have max(1, max / pictures).
// Thread-safe.
class ImageProcessor {
 public:
  ImageProcessor(const ImageSpec& spec, const TilesConfig& tiles) : spec_(spec), tiles_(tiles) {}

  const ImageSpec& spec() const { return spec_; }
  const TilesConfig& tiles() const { return tiles_; }
  // The fewest tokens that a picture can have, and a video.
  int64_t least_tokens() const { return spec_.tokens_per_tile; }
  int64_t LeastTokens(const Video& video) const;
  // The load of one of a record's `pictures`. Throws ImageError as GridOf() does, and for one that
  // is padded to a square and has a side above 65,535. REQUIRES: spec().takes_pictures().
  PictureLoad Measure(ImageSize size, int64_t pictures) const;
  // What a micro-batch lists of a picture, where spec().lists_grids(). The patches, where
  // spec().has_grids(): both sides rounded to whole squares of patches and kept between the spec's
  // limits, as smart_resize of Transformers does. Throws ImageError for a picture more than 200
  // times as long as wide, as it does. Else height and width, or OnlySquare() (any_resolution.h) of
  // one of a record's several `pictures`, where spec().lone_tiles; throws ImageError for such a
  // one, not square, with a side above 65,535.
  PatchGrid GridOf(ImageSize size, int64_t pictures = 1) const;
  // The same of a video whose frames have that size; where not spec().has_grids(), VideoOfFrames()
  // (any_resolution.h). REQUIRES: spec().takes_videos(), and the video is arranged.
  PatchGrid GridOf(ImageSize size, const Video& video) const;
  // Pixels of such a picture, [tiles, 3, tile_size, tile_size] uint8, of `image`, [height, width,
  // 3] uint8: for tiles resized to the grid, cut row by row, the thumbnail (a second resize of the
  // original) last; for a square as spec().fit says; for any resolution the whole picture first,
  // then the tiles of the padded one, or the square alone. Of a grid [patches,
  // spec().patch_numbers()], square by square of the patches that become one token. They are
  // normalized where they are computed with (ops::PixelScale). In a target of its own,
  // image_pixels, as it needs LibTorch.
  at::Tensor Make(const at::Tensor& image, int64_t pictures) const;
  // Likewise of a video, whose frames `decode` gives as such images, each once and in order: the
  // patches of each of its times, or where not spec().has_grids() each frame stretched to one tile.
  // `size`: of its first frame.
  at::Tensor Make(ImageSize size, const Video& video,
                  const std::function<at::Tensor(size_t frame)>& decode) const;

 private:
  int64_t MostPixels(const Video& video) const;
  at::Tensor MakeTiles(const at::Tensor& image, int64_t pictures) const;
  // Writes the tile that the whole picture becomes.
  void WriteSquare(const at::Tensor& image, ImageSpec::Fit fit, uint8_t* out) const;
  at::Tensor MakeSquare(const at::Tensor& image) const;
  at::Tensor MakeAnyResolution(const at::Tensor& image) const;
  at::Tensor MakePatches(const at::Tensor& image) const;
  // Writes the patches of one time of a grid, of its frames; fewer than a patch takes: the last is
  // repeated.
  void WritePatches(const std::vector<at::Tensor>& frames, const PatchGrid& grid,
                    uint8_t* out) const;

  ImageSpec spec_;
  TilesConfig tiles_;
};

}  // namespace equipoise
