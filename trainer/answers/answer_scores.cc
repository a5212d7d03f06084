#include "trainer/answers/answer_scores.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "data/text/thoughts.h"

namespace equipoise {
namespace {

// Similarities below it count as 0, as in DocVQA's evaluation.
constexpr double kAnlsThreshold = 0.5;
constexpr double kRelaxedTolerance = 0.05;

// Lower case of Latin, Greek and Cyrillic letters: those of the benchmarks' languages that have
// one.
char32_t Lower(char32_t c) {
  const auto within = [c](char32_t first, char32_t last) { return first <= c && c <= last; };
  if (within('A', 'Z') || (within(0xC0, 0xDE) && c != 0xD7)) return c + 32;
  if (c == 0x178) return 0xFF;
  if (within(0x139, 0x148) || within(0x179, 0x17E)) return c + (c % 2);  // odd ones are capitals
  if (within(0x100, 0x137) || within(0x14A, 0x177)) return c == 0x130 ? 'i' : c + 1 - (c % 2);
  if (within(0x391, 0x3A9) || within(0x410, 0x42F)) return c + 32;
  if (within(0x400, 0x40F)) return c + 80;
  return c;
}

// Code points; a byte that begins no valid sequence stands for itself.
std::u32string Decode(std::string_view text) {
  std::u32string result;
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char lead = byte(i);
    const size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    char32_t c = more == 0 ? lead : lead & (0x3FU >> more);
    size_t read = 1;
    while (read <= more && i + read < text.size() && (byte(i + read) & 0xC0U) == 0x80)
      c = c << 6U | (byte(i + read++) & 0x3FU);
    if (read <= more) {
      c = lead;
      read = 1;
    }
    result.push_back(c);
    i += read;
  }
  return result;
}

bool IsSpace(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xA0; }

bool IsPunctuation(char32_t c) {  // Python's string.punctuation
  return c < 0x80 && std::ispunct(static_cast<int>(c)) != 0;
}

// In lower case, words apart by one space.
std::u32string Plain(std::string_view text) {
  std::u32string result;
  bool gap = false;
  for (const char32_t c : Decode(text)) {
    if (IsSpace(c)) {
      gap = !result.empty();
      continue;
    }
    if (gap) result.push_back(' ');
    gap = false;
    result.push_back(Lower(c));
  }
  return result;
}

std::u32string Normalized(std::string_view text) {
  std::u32string result, word;
  const auto end_word = [&] {
    if (!word.empty() && word != U"a" && word != U"an" && word != U"the") {
      if (!result.empty()) result.push_back(' ');
      result += word;
    }
    word.clear();
  };
  for (const char32_t c : Plain(text)) {
    if (c == ' ') {
      end_word();
    } else if (!IsPunctuation(c)) {
      word.push_back(c);
    }
  }
  end_word();
  return result;
}

// Answers of which nothing is left, such as a sign or the letter A, are compared as they stand.
bool SameNormalized(std::string_view a, std::string_view b) {
  const std::u32string left = Normalized(a), right = Normalized(b);
  return left.empty() || right.empty() ? Plain(a) == Plain(b) : left == right;
}

size_t EditDistance(const std::u32string& a, const std::u32string& b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a's beginning to those of b
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

double Anls(const std::u32string& answer, const std::u32string& reference) {
  const size_t longer = std::max(answer.size(), reference.size());
  if (longer == 0) return 1;
  const double similarity =
      1 - static_cast<double>(EditDistance(answer, reference)) / static_cast<double>(longer);
  return similarity < kAnlsThreshold ? 0 : similarity;
}

// As ChartQA's evaluation reads it: a percentage is a share.
std::optional<double> NumberOf(std::string_view text) {
  std::string digits(text);
  while (!digits.empty() && IsSpace(static_cast<unsigned char>(digits.back()))) digits.pop_back();
  const bool percent = !digits.empty() && digits.back() == '%';
  if (percent) digits.pop_back();
  if (digits.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (*end != '\0' || !std::isfinite(value)) return std::nullopt;
  return percent ? value / 100 : value;
}

double Relaxed(std::string_view answer, std::string_view reference) {
  const auto number = NumberOf(answer), wanted = NumberOf(reference);
  if (number && wanted && *wanted != 0)
    return std::abs(*number - *wanted) <= kRelaxedTolerance * std::abs(*wanted) ? 1 : 0;
  return Plain(answer) == Plain(reference) ? 1 : 0;
}

// "A. text", "A) text", "A: text" and "(A) text": the letter, and the text behind it; or 0.
struct Marked {
  char letter = 0;
  std::string_view text;
};
Marked MarkedBy(std::string_view line) {
  while (!line.empty() && IsSpace(static_cast<unsigned char>(line.front()))) line.remove_prefix(1);
  const bool open = !line.empty() && line.front() == '(';
  if (open) line.remove_prefix(1);
  if (line.size() < 2 || line[0] < 'A' || line[0] > 'Z') return {};
  if (open ? line[1] != ')' : std::string_view(".):").find(line[1]) == std::string_view::npos)
    return {};
  return {line[0], line.substr(2)};
}

// The texts of a question's options, from A on; fewer than two are none.
std::vector<std::string_view> OptionsOf(std::string_view question) {
  std::vector<std::string_view> options;
  for (size_t begin = 0; begin <= question.size();) {
    const size_t end = std::min(question.find('\n', begin), question.size());
    const Marked line = MarkedBy(question.substr(begin, end - begin));
    if (line.letter == 'A' + static_cast<char>(options.size())) options.push_back(line.text);
    begin = end + 1;
  }
  if (options.size() < 2) options.clear();
  return options;
}

// The option that a text names: by its letter alone or in front, behind "answer is" or "answer:",
// or by its text; -1: none.
int ChoiceOf(std::string_view text, const std::vector<std::string_view>& options) {
  const auto index = [&](char32_t letter) {
    const auto i = static_cast<int>(letter) - 'A';
    return i >= 0 && i < static_cast<int>(options.size()) ? i : -1;
  };
  std::u32string bare;  // without punctuation around it
  for (const char32_t c : Decode(text)) {
    if (!IsSpace(c) && !IsPunctuation(c)) bare.push_back(c);
  }
  if (bare.size() == 1) {
    const int named = index(bare[0] >= 'a' && bare[0] <= 'z' ? bare[0] - 32 : bare[0]);
    if (named >= 0) return named;
  }
  // Before a mark: "E. coli" is a text.
  for (size_t i = 0; i < options.size(); ++i)
    if (SameNormalized(text, options[i])) return static_cast<int>(i);
  if (const Marked marked = MarkedBy(text); marked.letter != 0) return index(marked.letter);
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view words : {"answer is", "answer:"}) {
    size_t at = lower.find(words);
    if (at == std::string::npos) continue;
    at += words.size();
    while (at < text.size() && (text[at] == ' ' || text[at] == ':' || text[at] == '(')) ++at;
    const bool ends =
        at + 1 >= text.size() || std::isalnum(static_cast<unsigned char>(text[at + 1])) == 0;
    if (at < text.size() && ends && index(static_cast<unsigned char>(text[at])) >= 0)
      return index(static_cast<unsigned char>(text[at]));
  }
  return -1;
}

}  // namespace

AnswerScores ScoreAnswer(std::string_view question, const std::vector<std::string>& references,
                         std::string_view answer) {
  AnswerScores scores;
  answer = BehindThought(answer);
  const std::vector<std::string_view> options = OptionsOf(question);
  const int chosen = options.empty() ? -1 : ChoiceOf(answer, options);
  for (const std::string& text : references) {
    const std::string reference(WithoutThought(text));
    if (answer == reference) scores.exact = 1;
    if (SameNormalized(answer, reference)) scores.normalized = 1;
    scores.anls = std::max(scores.anls, Anls(Plain(answer), Plain(reference)));
    scores.relaxed = std::max(scores.relaxed, Relaxed(answer, reference));
    const int wanted = options.empty() ? -1 : ChoiceOf(reference, options);
    if (wanted >= 0)
      scores.choice = std::max(scores.choice.value_or(0), chosen == wanted ? 1.0 : 0);
  }
  return scores;
}

AnswerScores MeanOf(const std::vector<AnswerScores>& all) {
  AnswerScores mean;
  AnswerScores::VisitFields(mean, [&](const std::string& name, auto& field) {
    double sum = 0, count = 0;
    for (const AnswerScores& scores : all) {
      AnswerScores::VisitFields(scores, [&](const char* other, const auto& value) {
        const std::optional<double> known = value;
        if (name != other || !known) return;
        sum += *known;
        ++count;
      });
    }
    if (count > 0) field = sum / count;
  });
  return mean;
}

}  // namespace equipoise
