#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/file_handle.h"

namespace equipoise {

// The metrics of an optimizer step in metrics.jsonl. An unknown value is absent and its key is not
// written; a value that is not finite is written as null. `tokens`, `samples` and `images` are
// those of this step, summed over all ranks; times are in seconds.
struct StepMetrics {
  int64_t step = 0;             // 1 for the first
  std::optional<double> epoch;  // samples trained on so far, in epochs
  std::optional<double> loss, grad_norm, lr;
  std::optional<int64_t> loss_scale;  // in fp16; a step whose gradients overflow has no finite norm
  std::optional<int64_t> tokens, samples, images;
  std::optional<double> step_s, tokens_per_s, mfu;
  // mem_reserved_bytes: on a GPU, with what the caching allocator keeps free.
  std::optional<int64_t> mem_peak_bytes, mem_reserved_bytes, rss_peak_bytes;
  std::optional<double> data_wait_s, bubble_share, predicted_step_s;
  // Seconds between the end of the step before and the begin of this one (outer step, evaluation,
  // checkpoint, outputs), and those of them in which a checkpoint was saved. Absent for the first
  // of a start.
  std::optional<double> pause_s, checkpoint_s;
  std::optional<double> outer_s;  // of the outer step behind this one (train.diloco), if any
  // pad_ratio: share of the computed token positions that are padding, 0 without balance.pad.
  // fill_share: tokens over the packs' room (balance.tokens each); without packs 1 - pad_ratio.
  // dist_ratio_*: OmniBal's DistRatio of tiles and of tokens (balance/load/balance_metrics.h).
  std::optional<double> pad_ratio, fill_share, dist_ratio_vision, dist_ratio_text;
  std::optional<int64_t> skipped_samples;  // bad records found in the data, before and in training
  std::optional<double> eval_loss;         // on held-out data, if measured after this step
  // Mean scores of the answers to each set of eval.answers, by measure (trainer/answers), likewise.
  std::map<std::string, std::map<std::string, double>> answers;

  // All but `step` and `answers`.
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& visit) {
    visit("epoch", self.epoch);
    visit("loss", self.loss);
    visit("grad_norm", self.grad_norm);
    visit("lr", self.lr);
    visit("loss_scale", self.loss_scale);
    visit("tokens", self.tokens);
    visit("samples", self.samples);
    visit("images", self.images);
    visit("step_s", self.step_s);
    visit("tokens_per_s", self.tokens_per_s);
    visit("mfu", self.mfu);
    visit("mem_peak_bytes", self.mem_peak_bytes);
    visit("mem_reserved_bytes", self.mem_reserved_bytes);
    visit("rss_peak_bytes", self.rss_peak_bytes);
    visit("data_wait_s", self.data_wait_s);
    visit("pause_s", self.pause_s);
    visit("checkpoint_s", self.checkpoint_s);
    visit("outer_s", self.outer_s);
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

// The line of metrics.jsonl, without newline; numbers have 9 significant digits.
std::string MetricsLine(const StepMetrics& metrics);

// Appends to metrics.jsonl with one write per line, so that a killed run leaves at most the last
// line incomplete.
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

// Reads the steps of a metrics file; null becomes NaN. Unknown keys and incomplete lines are
// ignored. Empty when the file does not exist.
std::vector<StepMetrics> ReadMetrics(const std::string& path);

}  // namespace equipoise
