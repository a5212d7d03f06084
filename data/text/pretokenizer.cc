#include "data/text/pretokenizer.h"

#include <algorithm>

namespace equipoise {
namespace {

constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Span {
  size_t begin, end;
  bool match;
};

// Cuts the text into matches and the gaps between them, in order.
void FindSpans(std::string_view text, const std::vector<Regex::Match>& matches, bool invert,
               std::vector<Span>& spans) {
  spans.clear();
  size_t done = 0;
  for (const Regex::Match& match : matches) {
    if (match.begin > done) spans.push_back({done, match.begin, invert});
    // An empty match cuts, but is no span.
    if (match.end > match.begin) spans.push_back({match.begin, match.end, !invert});
    done = match.end;
  }
  if (done < text.size()) spans.push_back({done, text.size(), invert});
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

// The state of one call of Split(): the pieces of a text, cut by one step after the other.
class PreTokenizer::Run {
 public:
  explicit Run(std::string_view text) : text_(text), pieces_{{0, text.size()}} {}

  void Cut(const Step& step) {
    Regex::Matcher matcher(step.regex, text_.size());
    std::vector<Piece> cut;
    for (const Piece& piece : pieces_) {
      const std::string_view part = text_.substr(piece.begin, piece.end - piece.begin);
      matcher.FindAll(part, matches_);
      FindSpans(part, matches_, step.invert, spans_);
      Apply(step.behavior, spans_);
      for (const Span& span : spans_)
        cut.push_back({piece.begin + span.begin, piece.begin + span.end});
    }
    pieces_ = std::move(cut);
  }

  // Gives each piece a leading space where it has none.
  void AddSpaces() {
    std::string spaced;
    for (Piece& piece : pieces_) {
      const std::string_view part = text_.substr(piece.begin, piece.end - piece.begin);
      piece.begin = spaced.size();
      if (!part.starts_with(' ')) spaced += ' ';
      spaced += part;
      piece.end = spaced.size();
    }
    spaced_ = std::move(spaced);
    text_ = spaced_;
  }

  void Give(const std::function<void(std::string_view)>& word) const {
    for (const Piece& piece : pieces_) word(text_.substr(piece.begin, piece.end - piece.begin));
  }

 private:
  struct Piece {
    size_t begin, end;
  };
  std::string_view text_;
  std::string spaced_;
  std::vector<Piece> pieces_;
  std::vector<Regex::Match> matches_;
  std::vector<Span> spans_;
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
  if (text.empty()) return;
  Run run(text);
  for (size_t step = 0; step <= steps_.size(); ++step) {
    if (step == prefix_at_ && add_prefix_space_) run.AddSpaces();
    if (step < steps_.size()) run.Cut(steps_[step]);
  }
  run.Give(word);
}

}  // namespace equipoise
