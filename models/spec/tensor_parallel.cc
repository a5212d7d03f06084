#include "models/spec/tensor_parallel.h"

#include <fmt/format.h>

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr int64_t kWidthUnit = 16;  // elements: a cache line of fp32

struct Range {
  int64_t begin, size;
};

// Part `index` of `count` elements cut into `parts`, the larger ones first.
Range Even(int64_t count, int64_t parts, int64_t index) {
  const int64_t size = count / parts, rest = count % parts;
  return {index * size + std::min(index, rest), size + (index < rest ? 1 : 0)};
}

void RequireUnits(const TensorParallel& tensor, int64_t units, const std::string& what) {
  if (units >= tensor.size) return;
  throw ConfigError(fmt::format("parallel.tensor: {} ranks cannot share {} {}; use at most {}",
                                tensor.size, units, what, units));
}

}  // namespace

Share ShareUnits(const TensorParallel& tensor, int64_t units, int64_t unit,
                 const std::string& what) {
  RequireUnits(tensor, units, what);
  const Range range = Even(units, tensor.size, tensor.rank);
  Share share;
  share.begin = range.begin * unit;
  share.size = range.size * unit;
  share.whole = units * unit;
  share.part = tensor.rank;
  share.parts = tensor.size;
  return share;
}

Share ShareWidth(const TensorParallel& tensor, int64_t width, const std::string& what) {
  int64_t unit = kWidthUnit;
  while (unit > 1 && (width % unit != 0 || width / unit < tensor.size)) unit /= 2;
  return ShareUnits(tensor, width / unit, unit, what);
}

HeadShares ShareHeads(const TensorParallel& tensor, int64_t heads, int64_t key_heads,
                      int64_t head_dim, const std::string& what) {
  RequireUnits(tensor, heads, what);
  const int64_t group = heads / key_heads;
  HeadShares shares;
  if (key_heads >= tensor.size) {
    shares.key = ShareUnits(tensor, key_heads, head_dim, what);
    shares.query = ShareUnits(tensor, key_heads, group * head_dim, what);
    return shares;
  }
  // Ranks are divided among the key heads, then each key head's query heads among its ranks.
  int64_t key = 0;
  Range ranks = Even(tensor.size, key_heads, key);
  while (tensor.rank >= ranks.begin + ranks.size) ranks = Even(tensor.size, key_heads, ++key);
  const int64_t index = tensor.rank - ranks.begin;
  const Range queries = Even(group, ranks.size, index);
  shares.key = {key * head_dim,
                head_dim,
                key_heads * head_dim,
                static_cast<int>(key),
                static_cast<int>(key_heads),
                index == 0};
  shares.query = {(key * group + queries.begin) * head_dim,
                  queries.size * head_dim,
                  heads * head_dim,
                  tensor.rank,
                  tensor.size,
                  true};
  return shares;
}

}  // namespace equipoise
