#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/lora.h"
#include "models/spec/tensor_parallel.h"
#include "parallel/parameter_role.h"

namespace equipoise {

// The split of one dimension of a tensor over the tensor-parallel ranks.
struct Split {
  enum class By {
    kNothing,     // every rank holds the whole tensor
    kUnits,       // `count` units of `unit` elements: ShareUnits()
    kWidth,       // `count` elements: ShareWidth()
    kQueryHeads,  // `count` heads of `unit` elements, which use `key_heads`: ShareHeads()
    kKeyHeads,    // `key_heads` heads of `unit` elements, as kQueryHeads splits them
  };
  By by = By::kNothing;
  int64_t count = 0, unit = 1, key_heads = 0;
  const char* what = "";  // names the units in the ConfigError for more ranks than units

  static Split Units(int64_t count, const char* what) { return {By::kUnits, count, 1, 0, what}; }
  static Split Width(int64_t width, const char* what) { return {By::kWidth, width, 1, 0, what}; }
  // The split of queries by head; Keys() gives that of keys and values.
  static Split Heads(int64_t heads, int64_t key_heads, int64_t head_dim, const char* what) {
    return {By::kQueryHeads, heads, head_dim, key_heads, what};
  }
  Split Keys() const { return {By::kKeyHeads, count, unit, key_heads, what}; }

  // Elements of the whole dimension. REQUIRES: by is not kNothing.
  int64_t whole() const { return (by == By::kKeyHeads ? key_heads : count) * unit; }
  // The range of a rank. REQUIRES: by is not kNothing. Throws ConfigError for too many ranks.
  Share On(const TensorParallel& rank) const;
  // Elements of the largest range, that of the first rank.
  int64_t Largest(int ranks) const { return On({nullptr, 0, ranks}).size; }
};

// Initial values of a parameter: a normal distribution, or a uniform one within `bound` of 0; where
// deviation and bound are 0 all are `mean`.
struct Init {
  double deviation = 0, mean = 0;
  int64_t zero_row = -1;  // row (dimension 0) set to zeros; -1: none
  double bound = 0;

  static Init Normal(double deviation) { return {deviation, 0, -1}; }
  static Init Zeros() { return {0, 0, -1}; }
  static Init Ones() { return {0, 1, -1}; }
  static Init Uniform(double bound) { return {0, 0, -1, bound}; }
};

// A parameter in the description of a layer. LibTorch-free.
struct TensorSpec {
  std::string name;            // full name, as in files of Transformers and in checkpoints
  std::vector<int64_t> shape;  // of the whole tensor
  Init init;
  int dim = 0;  // the dimension that `split` refers to
  Split split;
  ParameterRole role = ParameterRole::kWeight;
  Packing packing = Packing::kNone;  // of a weight [out, in]
  GptqForm gptq = {};                // of kGptq

  int64_t numel() const;
  // Elements on the rank that has the most.
  int64_t LargestPart(int tensor_ranks) const;
  // Bytes on that rank, with elements of `element_bytes` where the weight is not packed.
  int64_t LargestBytes(int tensor_ranks, int64_t element_bytes) const;
};

}  // namespace equipoise
