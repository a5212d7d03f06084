#include "data/text/thoughts.h"

#include <fmt/format.h>

#include <algorithm>

namespace equipoise {
namespace {

constexpr std::string_view kBegin = "<think>", kEnd = "</think>";

std::string_view WithoutLinesBefore(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view WithoutLinesAround(std::string_view text) {
  text = WithoutLinesBefore(text);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

std::string Joined(std::string_view thought, std::string_view answer) {
  return fmt::format("{}\n{}\n{}\n\n{}", kBegin, WithoutLinesAround(thought), kEnd,
                     WithoutLinesBefore(answer));
}

}  // namespace

std::string WithThought(std::string_view answer) {
  const size_t begins = CountOf(kBegin, answer), ends = CountOf(kEnd, answer);
  if (begins + ends == 0) return Joined("", answer);
  std::string_view text = WithoutLinesBefore(answer);
  if (begins != 1 || ends != 1 || !text.starts_with(kBegin)) return std::string(answer);
  text.remove_prefix(kBegin.size());
  const size_t end = text.find(kEnd);
  return Joined(text.substr(0, end), text.substr(end + kEnd.size()));
}

std::string_view WithoutThought(std::string_view answer) {
  const size_t end = answer.rfind(kEnd);
  if (end == std::string_view::npos) return answer;
  return WithoutLinesBefore(answer.substr(end + kEnd.size()));
}

size_t LastQuestion(const std::vector<Turn>& turns) {
  const auto asks = [](const Turn& turn) {
    return turn.role == Role::kUser &&
           !(turn.text.starts_with("<tool_response>") && turn.text.ends_with("</tool_response>"));
  };
  const auto last = std::find_if(turns.rbegin(), turns.rend(), asks);
  return last == turns.rend() ? turns.size()
                              : static_cast<size_t>(std::distance(turns.begin(), last.base())) - 1;
}

std::string QwenAnswer(std::string_view answer, bool trained, bool earlier) {
  if (trained) return WithThought(answer);
  const std::string whole = WithThought(answer);
  if (earlier || whole.starts_with(Joined("", ""))) return std::string(WithoutThought(answer));
  return whole;
}

}  // namespace equipoise
