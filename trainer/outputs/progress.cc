#include "trainer/outputs/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace equipoise {
namespace {

constexpr double kDecayS = 10.0;  // time constant of the moving averages
constexpr double kLiveEveryS = 0.1;
constexpr size_t kColumns = 79;  // of a terminal that does not tell them

}  // namespace

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  const long long hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}h{:02}m", hours, minutes);
  if (minutes > 0) return fmt::format("{}m{:02}s", minutes, whole % 60);
  return fmt::format("{}s", whole);
}

std::string CountText(double count) {
  // From where it would be rounded to the next unit.
  if (count < 999.5) return fmt::format("{:.3g}", count);
  if (count < 999.5e3) return fmt::format("{:.3g}k", count / 1e3);
  if (count < 999.5e6) return fmt::format("{:.3g}M", count / 1e6);
  return fmt::format("{:.3g}G", count / 1e9);
}

void Progress::Smooth(const StepMetrics& metrics) {
  const double outer_s = metrics.outer_s.value_or(0);
  const double step_s = std::max(metrics.step_s.value_or(0) + outer_s, 1e-9);
  const double decay = std::exp(-step_s / kDecayS);
  const auto add = [decay](double& sum, double value) { sum = sum * decay + value; };
  add(seconds_, step_s);
  add(steps_, 1);
  add(tokens_, static_cast<double>(metrics.tokens.value_or(0)));
  add(samples_, static_cast<double>(metrics.samples.value_or(0)));
  add(images_, static_cast<double>(metrics.images.value_or(0)));
  add(wait_s_, metrics.data_wait_s.value_or(0));
  paused_s_ += std::max(metrics.pause_s.value_or(0) - last_outer_s_, 0.0);
  reported_ += 1;
  last_outer_s_ = outer_s;
}

std::string Progress::Text(const StepMetrics& metrics) const {
  std::string text = fmt::format("step {}/{}", metrics.step, options_.steps);
  if (metrics.epoch) text += fmt::format("  epoch {:.2f}", *metrics.epoch);
  if (metrics.loss) text += fmt::format("  loss {:.4f}", *metrics.loss);
  if (metrics.eval_loss) text += fmt::format("  eval {:.4f}", *metrics.eval_loss);
  if (metrics.lr) text += fmt::format("  lr {:.2e}", *metrics.lr);
  if (metrics.grad_norm) text += fmt::format("  norm {:.3g}", *metrics.grad_norm);
  text += fmt::format("  {} tokens/s  {} samples/s  {} images/s", CountText(tokens_ / seconds_),
                      CountText(samples_ / seconds_), CountText(images_ / seconds_));
  if (metrics.mfu) text += fmt::format("  MFU {:.1f}%", 100 * *metrics.mfu);
  text += fmt::format("  wait {:.0f}%", 100 * wait_s_ / seconds_);
  const double left = static_cast<double>(std::max<int64_t>(0, options_.steps - metrics.step));
  text += fmt::format("  ETA {}", DurationText(left * (seconds_ / steps_ + paused_s_ / reported_)));
  if (metrics.mem_peak_bytes)
    text +=
        fmt::format("  mem {:.2f} GiB", static_cast<double>(*metrics.mem_peak_bytes) / (1 << 30));
  if (options_.balance && metrics.dist_ratio_vision && metrics.dist_ratio_text) {
    text += fmt::format("  dist {:.3f} vision {:.3f} text", *metrics.dist_ratio_vision,
                        *metrics.dist_ratio_text);
  }
  return text;
}

void Progress::Report(const StepMetrics& metrics, double now_s) {
  Smooth(metrics);
  const bool ends = first_ || metrics.step >= options_.steps;
  const double every_s = options_.live ? kLiveEveryS : options_.every_s;
  if (!ends && now_s - shown_s_ < every_s) return;
  first_ = false;
  shown_s_ = now_s;
  if (options_.live) {
    const int columns = options_.columns ? options_.columns() : 0;
    const std::string text = Text(metrics);
    const size_t most = columns > 1 ? static_cast<size_t>(columns - 1) : kColumns;
    options_.live_out("\r\033[K" + text.substr(0, most));
  } else {
    options_.line_out(Text(metrics));
  }
}

}  // namespace equipoise
