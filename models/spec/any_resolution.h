#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/spec/image_spec.h"

namespace equipoise {

// Pictures of any resolution (anyres) as LLaVA-NeXT of Transformers takes them, of
// ImageSpec::Kind::kAnyRes. Of the model's resolutions the best is chosen; the picture is resized
// into it, its ratio kept, padded on both sides, and cut into tiles row by row. The whole picture,
// stretched to one tile, comes before them. Its tokens are first those of that tile; then, row by
// row of the resolution, those of the patches that are not padding alone, and behind each row a
// vector that is trained (image_newline).
//
// LLaVA-OneVision brings what is many more patches than those of ImageSpec::max_tiles down to about
// as many, by bilinear interpolation of what the projector makes of them. Of several pictures in a
// record (ImageSpec::lone_tiles) each is one tile with the vector at its end: OnlySquare(). A
// video's frames are one tile each, whose patches are brought down to half as many a side, rounded
// up, and one vector stands behind all of them: VideoOfFrames().

// A picture's height and width in pixels are a PatchGrid here: rows and columns of pixels.

// A picture or video by its tiles and tokens.
struct PictureParts {
  int64_t tiles = 1, tokens = 0;  // in all
  PatchGrid resolution;           // in tiles, without the one of the whole picture
  int64_t top = 0, left = 0;      // patches before the first that is kept, by row and column
  PatchGrid kept;                 // patches that become tokens
  PatchGrid shown;                // what they are brought down to; `kept` where they are not

  bool brought_down() const { return !(shown == kept); }
};

// Stands for a picture of which only the load is known, in place of its height and width: its
// tokens are the patches of its tiles in order, as many as there are.
PatchGrid BlankPicture(int64_t tiles, int64_t tokens);

// Stands for a picture that is one tile with the vector behind it: a blank one, of one token more
// than it has patches.
PatchGrid OnlySquare(const ImageSpec& images);

// Stands for a video of so many frames. REQUIRES: frames > 0.
PatchGrid VideoOfFrames(int64_t frames);

// The best of the resolutions, in tiles: the one that keeps most of the picture's pixels, and of
// those the one that wastes the fewest. REQUIRES: images.resolutions is not empty.
PatchGrid BestResolution(const ImageSpec& images, const PatchGrid& pixels);

// The size of the picture within a resolution of `whole` pixels.
PatchGrid SizeWithin(const PatchGrid& whole, const PatchGrid& pixels);

// `pixels` may be a BlankPicture() or a VideoOfFrames(). Of the latter `kept` and `shown` are those
// of a frame.
PictureParts PartsOf(const ImageSpec& images, const PatchGrid& pixels);

// For each token of the pictures the row of the encoder, over all tiles, that it comes from; of a
// token that is the vector behind a row that of the token before it.
struct TokenRows {
  std::vector<int64_t> rows;
  std::vector<int64_t> newlines;  // tokens that are this vector
  // Tokens that are sums of four rows, in place of the one above: for each of the four the row and
  // its weight. No row comes twice in the list of one of the four.
  std::vector<int64_t> blended;
  std::array<std::vector<int64_t>, 4> corners;
  std::array<std::vector<float>, 4> weights;
};
TokenRows TokenRowsOf(const ImageSpec& images, const std::vector<PatchGrid>& pictures);

}  // namespace equipoise
