#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace equipoise {

// Keys and values of the tokens of one sequence, by decoder block. A forward pass with
// MicroBatch::cache set appends its tokens and attends to all. The first pass may have any number
// of tokens, in one segment; later passes have one.
class KvCache {
 public:
  struct Entry {
    at::Tensor keys, values;  // [capacity, kv_heads * head_dim]
    int64_t length = 0;       // rows in use
  };

  // Appends rows to the entry of block `layer` and returns all its keys and values [length, ...].
  std::pair<at::Tensor, at::Tensor> Append(size_t layer, const at::Tensor& keys,
                                           const at::Tensor& values);
  // Number of tokens held, which is the position of the next token.
  int64_t length() const { return entries_.empty() ? 0 : entries_[0].length; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace equipoise
