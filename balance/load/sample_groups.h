#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "models/spec/layer_spec.h"

namespace equipoise {

// The load of a sample: patches of its pictures and tokens.
struct SampleSize {
  SampleSize() = default;
  SampleSize(const PictureLoad& pictures, int64_t its_tokens, int64_t its_targets)
      : patch_pairs(pictures.patch_pairs),
        window_pairs(pictures.window_pairs),
        patches(static_cast<int32_t>(pictures.patches)),
        image_tokens(static_cast<int32_t>(pictures.image_tokens)),
        tokens(static_cast<int32_t>(its_tokens)),
        targets(static_cast<int32_t>(its_targets)) {}
  // A sample without patch pairs and image tokens. Without `its_targets` every token is a target.
  SampleSize(int32_t its_patches, int32_t its_tokens)
      : SampleSize(its_patches, its_tokens, its_tokens) {}
  SampleSize(int32_t its_patches, int32_t its_tokens, int32_t its_targets)
      : SampleSize(PictureLoad{its_patches, 0, 0}, its_tokens, its_targets) {}

  double patch_pairs = 0;  // these four as in PictureLoad
  double window_pairs = 0;
  int32_t patches = 0;
  int32_t image_tokens = 0;
  int32_t tokens = 0;   // image tokens included
  int32_t targets = 0;  // tokens with a loss
};

// A list of samples that need not all be in memory.
struct SampleList {
  int64_t size = 0;
  // The load of the sample at an index; empty where that sample cannot be used.
  std::function<std::optional<SampleSize>(int64_t place)> size_at;
};
// A list over `sizes`, which must outlive it.
SampleList ListOf(std::span<const SampleSize> sizes);

// Limits on the sums over the samples of a group: OmniBal's Q_v, in patches, and Q_t.
struct GroupLimits {
  int64_t patches = 0;
  int64_t tokens = 0;

  bool Hold(const SampleSize& size) const {
    return size.patches <= patches && size.tokens <= tokens;
  }
};

// A list of groups of samples. A sample is an index into the list of sizes.
class SampleGroups {
 public:
  void Add(std::span<const int64_t> samples);
  void Reserve(int64_t groups, int64_t samples);
  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }
  int64_t num_samples() const { return static_cast<int64_t>(samples_.size()); }
  std::span<const int64_t> operator[](int64_t group) const;

 private:
  std::vector<int64_t> samples_;
  std::vector<int64_t> begins_ = {0};  // begin of each group in samples_, and the end
};

// Groups that hold each sample once, except for those that exceed the limits on their own.
struct Grouping {
  SampleGroups groups;
  std::vector<int64_t> oversize;
};

// Splits `samples` into those within the limits (returned in order) and those beyond them (appended
// to `oversize`).
std::vector<int64_t> WithinLimits(std::span<const SampleSize> sizes,
                                  std::span<const int64_t> samples, const GroupLimits& limits,
                                  std::vector<int64_t>& oversize);
// The numbers 0 to size - 1.
std::vector<int64_t> Indices(int64_t size);

// The load of a packed group on a layer; each sample is a segment of its own.
LayerLoad GroupLoad(std::span<const SampleSize> sizes, std::span<const int64_t> samples);

}  // namespace equipoise
