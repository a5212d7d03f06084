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
  // [segments]: tokens that each held before this pass. A pass may run several stages of a rank
  // one after the other, of which the later ones find the cache longer by its tokens.
  std::vector<int64_t> cached;
  // The head computes the last row of each segment alone: its most likely token, [segments] int64,
  // or its logits, [segments, vocabulary] fp32.
  bool greedy = true;
};

}  // namespace equipoise
