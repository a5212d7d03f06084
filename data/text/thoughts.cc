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
  const size_t begin = begins == 0 ? 0 : answer.find(kBegin), end = answer.find(kEnd);
  const bool first = answer.substr(0, begin).find_first_not_of(" \n") == std::string_view::npos;
  if (begins > 1 || ends != 1 || end < begin || !first) return std::string(answer);
  const size_t inside = begins == 0 ? 0 : begin + kBegin.size();
  return Joined(answer.substr(inside, end - inside), answer.substr(end + kEnd.size()));
}

std::string_view WithoutThought(std::string_view answer) {
  const size_t end = answer.rfind(kEnd);
  if (end == std::string_view::npos) return answer;
  return WithoutLinesBefore(answer.substr(end + kEnd.size()));
}

std::string_view BehindThought(std::string_view answer) {
  const std::string_view behind = WithoutThought(answer);
  return behind.find(kBegin) == std::string_view::npos ? behind : "";
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
  if (earlier || whole.starts_with(kNoThought)) return std::string(WithoutThought(answer));
  return whole;
}

}  // namespace equipoise
