#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// How well an answer agrees with its reference, by the measures of the field; each 0 to 1.
struct AnswerScores {
  // The same text, byte by byte.
  double exact = 0;
  // The same text without case, punctuation, articles and repeated spaces: SQuAD's normalize_answer
  // (arXiv 1606.05250).
  double normalized = 0;
  // Average normalized Levenshtein similarity of ST-VQA and DocVQA (arXiv 1905.13648): 1 - edit
  // distance / the longer length, in characters, without case and repeated spaces; 0 below 0.5.
  double anls = 0;
  // ChartQA's relaxed accuracy (arXiv 2203.10244): a number within 5 % of the reference, or the
  // same text without case.
  double relaxed = 0;
  // Accuracy on a question that lists options, "A. ..." or "(A) ..." a line: the letter in the
  // answer, or the option whose text it is. Absent where the question lists none.
  std::optional<double> choice;

  // Of the same question without an answer.
  AnswerScores OfNone() const {
    AnswerScores none;
    if (choice) none.choice = 0;
    return none;
  }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& visit) {
    visit("exact", self.exact);
    visit("normalized", self.normalized);
    visit("anls", self.anls);
    visit("relaxed", self.relaxed);
    visit("choice", self.choice);
  }
};

// The names of the measures.
inline constexpr std::array<std::string_view, 5> kAnswerMeasures = {"exact", "normalized", "anls",
                                                                    "relaxed", "choice"};

// By each measure, the score beside the reference that gives the highest, of what stands behind
// thoughts (data/text/thoughts.h). Pure. Texts are UTF-8; what is not counts as one character a
// byte.
AnswerScores ScoreAnswer(std::string_view question, const std::vector<std::string>& references,
                         std::string_view answer);

// Means; of `choice`, over those that have it. Zeros without any.
AnswerScores MeanOf(const std::vector<AnswerScores>& all);

}  // namespace equipoise
