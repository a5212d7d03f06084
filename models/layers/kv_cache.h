#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace equipoise {

// Keys and values of the tokens of one sequence, by decoder block; of the blocks and heads that
// this rank holds.
class KvCache {
 public:
  // Appends rows to the entry of block `layer` and returns all its keys and values [length, ...].
  std::pair<at::Tensor, at::Tensor> Append(size_t layer, const at::Tensor& keys,
                                           const at::Tensor& values);
  // Number of tokens held, which is the position of the next token; in the middle of a pass, of
  // those that the first block that runs here holds.
  int64_t length() const;

 private:
  struct Entry {
    at::Tensor keys, values;  // [capacity, kv_heads * head_dim]
    int64_t length = 0;       // rows in use
  };
  std::vector<Entry> entries_;
};

// Generation: the sequences whose next tokens a micro-batch holds, one a segment. A pass appends
// its tokens to the caches and attends to all of theirs. A segment may have any number of tokens in
// its sequence's first pass, and has one in later passes.
struct Decoding {
  std::vector<KvCache*> caches;  // [segments]
  // The head computes the last row of each segment alone: its most likely token, [segments] int64,
  // or its logits, [segments, vocabulary] fp32.
  bool greedy = true;
};

}  // namespace equipoise
