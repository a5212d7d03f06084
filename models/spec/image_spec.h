#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "models/spec/layer_load.h"

namespace equipoise {

// Rows and columns of a picture's patches. A video has so many at each of several times, which are
// `time_step` positions of the language model apart.
struct PatchGrid {
  int64_t rows = 0, columns = 0;
  int64_t times = 1;
  float time_step = 1;

  int64_t patches() const { return times * rows * columns; }
  bool operator==(const PatchGrid&) const = default;
};

// The image input of a model. data/images makes an image processor from it.
struct ImageSpec {
  enum class Kind : uint8_t {
    kNone,    // no pictures
    kTiles,   // squares of one size, cut from the resized picture, and a thumbnail
    kSquare,  // the whole picture as one tile
    kNative,  // the whole picture at about its own size, as a grid of patches
    // The whole picture as one tile, then the tiles of the best of several resolutions, into which
    // it is fitted (models/spec/any_resolution.h).
    kAnyRes,
  };
  // How the whole picture becomes a square.
  enum class Fit : uint8_t {
    kStretch,  // resized, its ratio changed
    kPad,      // padded with the mean colour, then resized
    kCrop,     // resized by its shorter side, then cropped at its centre
  };
  Kind kind = Kind::kNone;
  Fit fit = Fit::kStretch;  // of kSquare
  bool bilinear = false;    // of kSquare: how it is resized; all else is bicubic
  int64_t tile_size = 0;    // pixels of a side
  // Rows of a tile in the encoder, where they are one segment of attention, and in the language
  // model. Without an encoder a tile counts as one row and no tokens. Of kNative a tile is a square
  // of merge * merge patches, one token.
  int64_t rows_per_tile = 1, tokens_per_tile = 0;
  // Of kNative. A picture is resized to multiples of patch_size * merge pixels, and to between
  // min_pixels and max_pixels in all. A patch comes frames times, as a video's would. Attention of
  // windowed layers stays within squares of `window` patches a side; 0: no layer has windows.
  int64_t patch_size = 0, merge = 1, frames = 1, window = 0;
  int64_t min_pixels = 0, max_pixels = 0;
  // Of kAnyRes: rows and columns of tiles of each resolution.
  std::vector<PatchGrid> resolutions;
  // Of kAnyRes: the patches of these tiles are brought down to about those of so many, where they
  // are clearly more; 0: never.
  int64_t max_tiles = 0;
  // Of kAnyRes: whether the pictures of a record that has several are one square each, padded, with
  // one vector behind all its patches.
  bool lone_tiles = false;
  // How videos are taken. Of kNative the `frames` frames of a patch are one time of theirs, which
  // is for the encoder as a picture is; the last frame is repeated to fill it. Of kAnyRes a frame
  // is a tile, whose pixels the limits are (models/spec/any_resolution.h).
  struct Videos {
    // Limits of a frame's pixels, or of all frames' together; max_pixels 0: the model takes no
    // videos as such, and their frames are pictures.
    int64_t min_pixels = 0, max_pixels = 0;
    bool of_all_frames = false;
    // As many tokens of a frame (where the limits are of all frames), or 90 % of as many of all
    // pairs of frames, limit a frame too: `cap_pixels_per_frame` of Transformers' processors; 0: no
    // limit.
    int64_t capped_tokens = 0;
    // Whether the seconds of each time stand in the text before it.
    bool timestamps = false;
    // Of the language model; 0: two times are one position apart, whatever the time between them.
    double positions_per_second = 0;
  };
  Videos videos;
  // How names, boxes and points of things in pictures are written (data/records/record_objects.h).
  enum class Grounding : uint8_t {
    kPoints,     // cat [(x,y),(x,y)]
    kInternVl,   // <ref>cat</ref> <box>[[x, y, x, y]]</box>
    kQwen2Vl,    // likewise, with this model's marks: (x,y),(x,y)
    kList,       // cat [x, y, x, y], in thousandths of the picture's sides, as all above
    kPixelList,  // the same in pixels of the resized picture; of kNative alone
  };
  Grounding grounding = Grounding::kPoints;
  // Normalization of red, green and blue: x of 0 to 1 becomes (x - mean) / deviation.
  std::array<float, 3> mean = {0, 0, 0}, deviation = {1, 1, 1};

  bool takes_pictures() const { return kind != Kind::kNone; }
  bool takes_videos() const { return videos.max_pixels > 0; }
  // Whether pictures are grids of patches, whose places count for the language model's positions.
  bool has_grids() const { return kind == Kind::kNative; }
  // Whether a micro-batch's patches alone do not say which tokens they become: it lists the grids
  // of its pictures (MicroBatch::image_grids), of kAnyRes their heights and widths in pixels.
  bool lists_grids() const { return has_grids() || kind == Kind::kAnyRes; }
  // Numbers of a patch, of kNative: channel, frame, row, column.
  int64_t patch_numbers() const { return 3 * frames * patch_size * patch_size; }

  // The load of a picture or video by what lists_grids() tells of it.
  PictureLoad LoadOfGrid(const PatchGrid& grid) const;
  // What lists_grids() tells of pictures with so many tiles in all. Of kNative as square as the
  // number allows: pictures of the largest size, and the rest. Of kAnyRes tiles without padding.
  std::vector<PatchGrid> GridsOfTiles(int64_t tiles) const;
  PictureLoad LoadOfTiles(int64_t tiles) const;
  // Number of tiles that have `patches` rows in the encoder.
  int64_t TilesOf(int64_t patches) const { return patches / rows_per_tile; }
  // The word for tiles: a tile of kNative is known by the token that it becomes.
  const char* tile_word() const { return has_grids() ? "image tokens" : "tiles"; }
};

}  // namespace equipoise
