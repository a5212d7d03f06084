#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace equipoise {

// Keys and values of one sequence's tokens so far, by LLM layer. A forward pass with
// MicroBatch::cache set appends its tokens and attends to all. The first pass may have any number
// of tokens, in one segment; later ones have one.
class KvCache {
 public:
  struct Entry {
    at::Tensor keys, values;  // [capacity, kv_heads * head_dim]
    int64_t length = 0;       // rows in use
  };

  // Appends rows to layer `layer` and returns all its keys and values [length, ...].
  std::pair<at::Tensor, at::Tensor> Append(size_t layer, const at::Tensor& keys,
                                           const at::Tensor& values);
  // Tokens held, which is the position of the next one.
  int64_t length() const { return entries_.empty() ? 0 : entries_[0].length; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace equipoise
