#include "data/text/normalizer.h"

#include <fmt/format.h>

#include <utility>

#include "data/text/text_error.h"

namespace equipoise {
namespace {

// LLaMA's makes three bytes of each space.
constexpr size_t kMostGrowth = 4, kFreeGrowth = 64 << 10;

}  // namespace

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps, const std::string& source)
    : source_(source) {
  for (const NormalizerStep& step : steps) {
    steps_.push_back({step, std::nullopt});
    if (step.kind == NormalizerStep::Kind::kForm) steps_.back().form.emplace(step.form, source);
  }
}

std::string Normalizer::Run(std::string_view text) const {
  const size_t most = kMostGrowth * text.size() + kFreeGrowth;
  std::string out(text);
  for (const Step& step : steps_) {
    if (step.form) {
      out = step.form->Run(out);
    } else if (step.step.kind == NormalizerStep::Kind::kReplace) {
      Replace(step.step, most, out);
    } else if (!out.empty()) {
      out.insert(0, step.step.content);
    }
    CheckSize(out.size(), most);
  }
  return out;
}

void Normalizer::Replace(const NormalizerStep& step, size_t most, std::string& text) const {
  size_t at = text.find(step.pattern);
  if (at == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(step.pattern, done)) {
    out.append(text, done, at - done);
    out += step.content;
    CheckSize(out.size(), most);
    done = at + step.pattern.size();
  }
  out.append(text, done);
  text = std::move(out);
}

void Normalizer::CheckSize(size_t bytes, size_t most) const {
  if (bytes <= most) return;
  throw TextError(
      fmt::format("{}: makes more than {} times as much of a text", source_, kMostGrowth));
}

}  // namespace equipoise
