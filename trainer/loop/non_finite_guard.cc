#include "trainer/loop/non_finite_guard.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>
namespace equipoise {
namespace {

constexpr size_t kMostNamed = 16;

std::string Named(const std::vector<std::string>& samples) {
  std::string text;
  for (size_t i = 0; i < samples.size() && i < kMostNamed; ++i) {
    text += (i == 0 ? "" : ", ") + samples[i];
  }
  if (samples.size() > kMostNamed) {
    text += fmt::format(" and {} more", samples.size() - kMostNamed);
  }
  return text;
}

}  // namespace

void NonFiniteGuard::Skip(const Step& step, const std::string& why) {
  ++in_a_row_;
  std::ostringstream text;
  text << "step " << step.number << ": loss " << step.loss << ", gradient norm " << step.grad_norm
       << why;
  if (step.least_scale > 0)
    text << fmt::format(", loss scale at its minimum of {:.0f}", step.least_scale);
  text << ": skipped, " << in_a_row_ << " in a row";
  if (!step.samples.empty()) text << "; samples: " << Named(step.samples);
  warning_ = text.str();
}

bool NonFiniteGuard::MayTry(const Step& step) {
  warning_.clear();
  if (std::isfinite(step.loss) && std::isfinite(step.grad_norm)) return true;
  Skip(step, "");
  return false;
}

void NonFiniteGuard::Tried(const Step& step, bool taken) {
  warning_.clear();
  tried_ = !taken;
  if (taken) {
    in_a_row_ = 0;
    return;
  }
  std::ostringstream why;
  why << ", learning rate " << step.lr << ": weights or moments would be infinite or no numbers";
  Skip(step, why.str());
}

}  // namespace equipoise
