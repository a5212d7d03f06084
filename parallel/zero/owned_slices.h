#pragma once

#include <cstdint>
#include <vector>

#include "parallel/shards.h"

namespace equipoise {

// Parameters that several pipeline ranks hold copies of: the same first `numel` elements of each
// one's buffer, with their optimizer state shared out over the copies beside the data ranks. Of
// the buckets the first `buckets` hold nothing else and are equal for all copies: each is split
// evenly. What no such bucket holds of the elements, few, is the first copy's.
struct CopiedElements {
  int64_t numel = 0;
  size_t buckets = 0;
  int copies = 1, index = 0;

  bool shared() const { return copies > 1 && numel > 0; }
};

// The buckets of a buffer whose first elements are copied, as Shards counts them from the end, but
// from the front where they hold copied ones alone. REQUIRES: numel == Shards::Padded(numel,
// ranks).
Shards ShardsOfCopied(int64_t numel, int ranks, int64_t bucket_numel, CopiedElements& copied);

// The elements of a flat buffer that one rank updates, and where their state lies in its own
// buffers: its slice of each bucket, and of what it holds a copy its share.
class OwnedSlices {
 public:
  OwnedSlices(const Shards& shards, int rank, const CopiedElements& copied = {});

  // Ascending in the buffer, one after the other in the state.
  const std::vector<Shards::Run>& runs() const { return runs_; }
  // What of them lies in a range of the buffer.
  std::vector<Shards::Run> RunsIn(Range range) const;
  int64_t numel() const { return numel_; }  // of the state
  int64_t buffer_numel() const { return buffer_numel_; }
  // Whether this rank updates all.
  bool whole() const { return numel_ == buffer_numel_; }

 private:
  std::vector<Shards::Run> runs_;
  int64_t numel_ = 0, buffer_numel_;
};

}  // namespace equipoise
