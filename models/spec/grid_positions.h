#pragma once

#include <cstdint>
#include <vector>

#include "models/spec/image_spec.h"

namespace equipoise {

// The tokens of a picture or video in a sample: its first token, their rows and columns, and of a
// video its times and the positions from one to the next (PatchGrid).
struct TokenGrid {
  int64_t begin = 0;
  int64_t rows = 0, columns = 0;
  int64_t times = 1;
  float time_step = 1;
};

// The tokens of pictures and videos whose first tokens are `begins`, `merge` patches of each side a
// token.
std::vector<TokenGrid> TokenGrids(const std::vector<int64_t>& begins,
                                  const std::vector<PatchGrid>& grids, int64_t merge);

// Where to write the times, rows and columns of a sample's tokens.
struct GridPositions {
  int64_t *times, *rows, *columns;
};

// Multimodal positions (M-RoPE; Qwen2-VL, arXiv 2409.12191, section 2.1) of a sample of `tokens`
// tokens. A token of text has one position three times, the one after all before it. Tokens of a
// picture have its time, and their row and column from there on; the text behind it goes on after
// the longest of the three. Those of a video's later times have the same rows and columns. Returns
// the position after the largest one, where generation goes on. As Qwen's own trainer, vLLM and
// get_rope_index of Transformers 4 have it; that of Transformers 5.23 counts the two sides alone,
// so that text is among the times of a long video (huggingface/transformers#45381). `pictures` are
// in order and do not overlap.
int64_t WriteGridPositions(const std::vector<TokenGrid>& pictures, int64_t tokens,
                           const GridPositions& out);

}  // namespace equipoise
