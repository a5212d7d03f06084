#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/file_handle.h"

namespace equipoise {

// One optimizer step in metrics.jsonl. An absent value is not known and its key is not written; a
// value that is not finite is written as null. `tokens`, `samples` and `images` are of this step,
// over all ranks.
struct StepMetrics {
  int64_t step = 0;             // 1 = the first
  std::optional<double> epoch;  // samples trained on so far, as a multiple of an epoch's
  std::optional<double> loss, grad_norm, lr;
  std::optional<int64_t> tokens, samples, images;
  std::optional<double> step_s, tokens_per_s, mfu;
  std::optional<int64_t> mem_peak_bytes, rss_peak_bytes;
  std::optional<double> data_wait_s, bubble_share, predicted_step_s;
  // pad_ratio: share of the computed token positions that are padding, 0 without balance.pad.
  // fill_share: share of the packs' room, balance.tokens each, that tokens fill; without packs
  // 1 - pad_ratio. dist_ratio_*: mean over the step's rows of the share that data ranks wait for
  // the one with the most tiles, tokens.
  std::optional<double> pad_ratio, fill_share, dist_ratio_vision, dist_ratio_text;
  std::optional<int64_t> skipped_samples;  // records left out, and met while training
  std::optional<double> eval_loss;         // of the held-out data, where measured after this step

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& visit) {
    visit("epoch", self.epoch);
    visit("loss", self.loss);
    visit("grad_norm", self.grad_norm);
    visit("lr", self.lr);
    visit("tokens", self.tokens);
    visit("samples", self.samples);
    visit("images", self.images);
    visit("step_s", self.step_s);
    visit("tokens_per_s", self.tokens_per_s);
    visit("mfu", self.mfu);
    visit("mem_peak_bytes", self.mem_peak_bytes);
    visit("rss_peak_bytes", self.rss_peak_bytes);
    visit("data_wait_s", self.data_wait_s);
    visit("bubble_share", self.bubble_share);
    visit("predicted_step_s", self.predicted_step_s);
    visit("pad_ratio", self.pad_ratio);
    visit("fill_share", self.fill_share);
    visit("dist_ratio_vision", self.dist_ratio_vision);
    visit("dist_ratio_text", self.dist_ratio_text);
    visit("skipped_samples", self.skipped_samples);
    visit("eval_loss", self.eval_loss);
  }
};

// The line of metrics.jsonl, without its end: 9 significant digits.
std::string MetricsLine(const StepMetrics& metrics);

// Appends to metrics.jsonl, each line in one write, so that a kill tears at most the last one.
class MetricsWriter {
 public:
  // Throws RunError.
  explicit MetricsWriter(const std::string& path);

  // Throws RunError when the disk is full.
  void Write(const StepMetrics& metrics);

 private:
  std::string path_;
  FileHandle file_;
};

// The steps of a metrics file; null becomes a NaN. Unknown keys, and lines that are torn, are
// passed over. No steps where there is no file.
std::vector<StepMetrics> ReadMetrics(const std::string& path);

}  // namespace equipoise
