#include "data/pretokenizer.h"

#include <algorithm>

namespace equipoise {
namespace {

constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Span {
  size_t begin, end;
  bool match;
};

// The text as matches and the gaps between them, in order.
void FindSpans(std::string_view text, Regex::Matcher& matcher, bool invert,
               std::vector<Span>& spans) {
  spans.clear();
  size_t at = 0;
  while (at < text.size()) {
    const auto match = matcher.Find(text, at);
    const size_t begin = match ? match->begin : text.size();
    if (begin > at) spans.push_back({at, begin, invert});
    if (!match) break;
    // A lookahead can still yield an empty match; it cuts and takes nothing.
    if (match->end > begin) spans.push_back({begin, match->end, !invert});
    at = std::max(match->end, begin + 1);
  }
}

void MergeForward(std::vector<Span>& spans, bool contiguous) {
  std::vector<Span> merged;
  bool previous = false;
  for (const Span& span : spans) {
    const bool join = contiguous ? span.match == previous : span.match && !previous;
    previous = span.match;
    if (join && !merged.empty()) {
      merged.back().end = span.end;
    } else {
      merged.push_back(span);
    }
  }
  spans = std::move(merged);
}

void MergeBackward(std::vector<Span>& spans) {
  std::vector<Span> merged;
  bool previous = false;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->match && !previous && !merged.empty()) {
      merged.back().begin = span->begin;
    } else {
      merged.push_back(*span);
    }
    previous = span->match;
  }
  std::reverse(merged.begin(), merged.end());
  spans = std::move(merged);
}

void Apply(SplitBehavior behavior, std::vector<Span>& spans) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(spans, [](const Span& span) { return span.match; });
      return;
    case SplitBehavior::kMergedWithPrevious:
      return MergeForward(spans, /*contiguous=*/false);
    case SplitBehavior::kContiguous:
      return MergeForward(spans, /*contiguous=*/true);
    case SplitBehavior::kMergedWithNext:
      return MergeBackward(spans);
  }
}

}  // namespace

// The scratch space of one call, and the walk down the steps.
class PreTokenizer::Run {
 public:
  Run(const PreTokenizer& owner, const std::function<void(std::string_view)>& word)
      : owner_(owner), word_(word), spans_(owner.steps_.size()) {
    for (const Step& step : owner.steps_) matchers_.emplace_back(step.regex);
  }

  void Walk(std::string_view piece, size_t step) {
    if (step == owner_.prefix_at_ && owner_.add_prefix_space_ && !piece.starts_with(' ')) {
      const std::string prefixed = " " + std::string(piece);
      return Cut(prefixed, step);
    }
    Cut(piece, step);
  }

 private:
  void Cut(std::string_view piece, size_t step) {
    if (step == owner_.steps_.size()) return word_(piece);
    std::vector<Span>& spans = spans_[step];
    FindSpans(piece, matchers_[step], owner_.steps_[step].invert, spans);
    Apply(owner_.steps_[step].behavior, spans);
    for (const Span& span : spans) Walk(piece.substr(span.begin, span.end - span.begin), step + 1);
  }

  const PreTokenizer& owner_;
  const std::function<void(std::string_view)>& word_;
  std::vector<Regex::Matcher> matchers_;
  std::vector<std::vector<Span>> spans_;  // of each step
};

PreTokenizer::PreTokenizer(const PreTokenizerSpec& spec, const std::string& source)
    : add_prefix_space_(spec.add_prefix_space), prefix_at_(spec.steps.size()) {
  for (const SplitStep& step : spec.steps) {
    steps_.push_back({Regex(step.pattern, source), step.behavior, step.invert});
  }
  if (spec.gpt2_split) {
    steps_.push_back({Regex(kGpt2Pattern, source), SplitBehavior::kIsolated, false});
  }
}

void PreTokenizer::Split(std::string_view text,
                         const std::function<void(std::string_view)>& word) const {
  if (!text.empty()) Run(*this, word).Walk(text, 0);
}

}  // namespace equipoise
