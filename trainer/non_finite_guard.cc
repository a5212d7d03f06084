#include "trainer/non_finite_guard.h"

#include <cmath>
#include <sstream>

#include "trainer/agreed_error.h"

namespace equipoise {
namespace {

constexpr size_t kMostNamed = 16;

std::string Named(const std::vector<std::string>& samples) {
  std::string text;
  for (size_t i = 0; i < samples.size() && i < kMostNamed; ++i) {
    text += (i == 0 ? "" : ", ") + samples[i];
  }
  if (samples.size() > kMostNamed) {
    text += " and " + std::to_string(samples.size() - kMostNamed) + " more";
  }
  return text;
}

}  // namespace

bool NonFiniteGuard::MayTake(const Step& step) {
  warning_.clear();
  if (std::isfinite(step.loss) && std::isfinite(step.grad_norm)) {
    in_a_row_ = 0;
    return true;
  }
  ++in_a_row_;
  std::ostringstream text;
  text << "step " << step.number << ": loss " << step.loss << ", gradient norm " << step.grad_norm
       << ": skipped, " << in_a_row_ << " in a row; samples: " << Named(step.samples);
  if (in_a_row_ >= kLimit) {
    throw AgreedRunError(text.str() + "; lower train.lr or look at these samples with `data show`");
  }
  warning_ = text.str();
  return false;
}

}  // namespace equipoise
