#include "data/text/decoder.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "data/text/utf8.h"

namespace equipoise {
namespace {

constexpr char kUnreadable[] = "\xEF\xBF\xBD";  // U+FFFD

// The byte that a token of byte fallback, <0x00> to <0xFF>, stands for.
std::optional<char> ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

std::vector<std::string> JoinBytes(std::vector<std::string> tokens) {
  std::vector<std::string> joined;
  std::string bytes;
  const auto flush = [&] {
    if (IsValidUtf8(bytes)) {
      if (!bytes.empty()) joined.push_back(bytes);
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) joined.emplace_back(kUnreadable);
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = ByteOf(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    joined.push_back(std::move(token));
  }
  flush();
  return joined;
}

void Strip(std::string& token, const DecoderStep& step) {
  size_t cut = 0;
  for (int64_t i = 0; i < step.count && token.compare(cut, step.content.size(), step.content) == 0;
       ++i) {
    cut += step.content.size();
  }
  token.erase(0, cut);
}

// WordPiece's clean-up, within one token.
std::string CleanUp(std::string token) {
  static constexpr std::array<std::pair<const char*, const char*>, 11> kReplaced = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [text, becomes] : kReplaced) token = ReplaceAll(std::move(token), text, becomes);
  return token;
}

void JoinWordPieces(const DecoderStep& step, std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string& token = tokens[i];
    if (i > 0 && token.starts_with(step.pattern)) {
      token.erase(0, step.pattern.size());
    } else if (i > 0) {
      token.insert(0, 1, ' ');
    }
    if (step.count > 0) token = CleanUp(std::move(token));
  }
}

void Run(const DecoderStep& step, std::vector<std::string>& tokens) {
  switch (step.kind) {
    case DecoderStep::Kind::kReplace:
      for (std::string& token : tokens) token = ReplaceAll(token, step.pattern, step.content);
      return;
    case DecoderStep::Kind::kByteFallback:
      tokens = JoinBytes(std::move(tokens));
      return;
    case DecoderStep::Kind::kFuse: {
      std::string all;
      for (const std::string& token : tokens) all += token;
      tokens = {std::move(all)};
      return;
    }
    case DecoderStep::Kind::kStrip:
      for (std::string& token : tokens) Strip(token, step);
      return;
    case DecoderStep::Kind::kWordPiece:
      return JoinWordPieces(step, tokens);
    case DecoderStep::Kind::kMetaspace:
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = ReplaceAll(tokens[i], step.pattern, i == 0 && step.count > 0 ? "" : " ");
      }
      return;
  }
}

}  // namespace

std::string ReplaceAll(std::string text, const std::string& pattern, const std::string& content) {
  size_t at = text.find(pattern);
  if (at == std::string::npos) return text;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(pattern, done)) {
    out.append(text, done, at - done);
    out += content;
    done = at + pattern.size();
  }
  return out.append(text, done);
}

std::string DecodeTokens(std::vector<std::string> tokens, const std::vector<DecoderStep>& steps) {
  for (const DecoderStep& step : steps) Run(step, tokens);
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

}  // namespace equipoise
