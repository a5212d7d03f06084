#include "models/layers/kv_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace equipoise {
namespace {

constexpr int64_t kFirstCapacity = 64;  // rows; doubled when full

void Extend(at::Tensor& rows, int64_t used, const at::Tensor& more) {
  const int64_t needed = used + more.size(0);
  if (!rows.defined() || rows.size(0) < needed) {
    const int64_t capacity = std::max({kFirstCapacity, needed, 2 * used});
    at::Tensor grown = at::empty({capacity, more.size(1)}, more.options());
    if (used > 0) grown.narrow(0, 0, used).copy_(rows.narrow(0, 0, used));
    rows = grown;
  }
  rows.narrow(0, used, more.size(0)).copy_(more);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KvCache::Append(size_t layer, const at::Tensor& keys,
                                                  const at::Tensor& values) {
  if (entries_.size() <= layer) entries_.resize(layer + 1);
  Entry& entry = entries_[layer];
  Extend(entry.keys, entry.length, keys);
  Extend(entry.values, entry.length, values);
  entry.length += keys.size(0);
  return {entry.keys.narrow(0, 0, entry.length), entry.values.narrow(0, 0, entry.length)};
}

}  // namespace equipoise
