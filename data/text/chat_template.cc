#include "data/text/chat_template.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "configs/base/error.h"
#include "data/settings/chat_templates.h"

namespace equipoise {
namespace {

constexpr std::string_view kPlaceholder = "<image>";
// Part of the fingerprint: raise it when Encode gives other ids for the same input.
constexpr uint64_t kVersion = 2;

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
  }
  return "";
}

size_t CountPlaceholders(std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(kPlaceholder); at != std::string_view::npos;
       at = text.find(kPlaceholder, at + kPlaceholder.size())) {
    ++count;
  }
  return count;
}

int32_t RequiredToken(const Tokenizer& tokenizer, const char* token, const std::string& name) {
  const auto id = tokenizer.TokenId(token);
  if (!id) {
    throw DataError(fmt::format(
        "{}: the template '{}' needs the token {}, which the vocabulary lacks; use another "
        "data.template or tokenizer",
        tokenizer.source(), name, token));
  }
  return *id;
}

}  // namespace

std::string PlaceImages(std::vector<Turn>& turns, size_t images) {
  size_t placeholders = 0;
  for (const Turn& turn : turns) {
    if (turn.role == Role::kUser) placeholders += CountPlaceholders(turn.text);
  }
  if (placeholders == images) return "";
  const auto user = std::find_if(turns.begin(), turns.end(),
                                 [](const Turn& turn) { return turn.role == Role::kUser; });
  if (placeholders == 0 && images == 1 && user != turns.end()) {
    user->text.insert(0, std::string(kPlaceholder) + "\n");
    return "";
  }
  return fmt::format("{} <image> in user turns for {} pictures; write one <image> for each",
                     placeholders, images);
}

std::string Truncate(EncodedConversation& conversation, const std::vector<int64_t>& image_tokens,
                     int64_t max_tokens) {
  if (std::ssize(conversation.ids) <= max_tokens) return "";
  if (!image_tokens.empty()) {
    // The closing </img> belongs to the picture.
    const int64_t end = conversation.image_begin.back() + image_tokens.back() + 1;
    if (end > max_tokens) {
      return fmt::format("the pictures end at token {}, behind max_tokens = {}", end, max_tokens);
    }
  }
  conversation.ids.resize(static_cast<size_t>(max_tokens));
  conversation.trained.resize(static_cast<size_t>(max_tokens));
  return "";
}

// Builds one conversation token by token.
class ChatTemplate::Writer {
 public:
  Writer(const ChatTemplate& owner, const std::vector<int64_t>& image_tokens)
      : owner_(owner), image_tokens_(image_tokens) {}

  void Begin() {
    for (const int32_t id : owner_.begin_) Add(id);
  }

  void AddTurn(Role role, std::string_view text, bool trained) {
    Add(owner_.start_of_turn_);
    const size_t begin = out_.ids.size();
    // The role's line and the text are cut into words together, as when the template is rendered.
    const std::string body = std::string(RoleName(role)) + "\n" + std::string(text);
    if (role == Role::kUser) {
      AddWithImages(body);
    } else {
      AddText(body);
    }
    Add(owner_.end_of_turn_);
    if (role == Role::kAssistant && trained) {
      const size_t first = std::min(begin + owner_.answer_header_, out_.ids.size());
      std::fill(out_.trained.begin() + static_cast<std::ptrdiff_t>(first), out_.trained.end(), 1);
    }
    for (const int32_t id : owner_.newline_) Add(id);
  }

  void AddAnswerPrompt() {
    Add(owner_.start_of_turn_);
    AddText(std::string(RoleName(Role::kAssistant)) + "\n");
  }

  EncodedConversation Finish() {
    EQUIPOISE_CHECK(out_.image_begin.size() == image_tokens_.size(), out_.image_begin.size(),
                    " placeholders for ", image_tokens_.size(), " pictures");
    return std::move(out_);
  }

 private:
  void Add(int32_t id) {
    out_.ids.push_back(id);
    out_.trained.push_back(0);
  }

  void AddText(std::string_view text) {
    owner_.marks_.Split(
        text,
        [&](std::string_view part) {
          for (const int32_t id : owner_.tokenizer_->Encode(part, /*parse_special=*/false)) Add(id);
        },
        [&](int32_t id) { Add(id); });
  }

  void AddWithImages(std::string_view text) {
    for (size_t at = text.find(kPlaceholder); at != std::string_view::npos;
         at = text.find(kPlaceholder)) {
      AddText(text.substr(0, at));
      AddImage();
      text.remove_prefix(at + kPlaceholder.size());
    }
    AddText(text);
  }

  void AddImage() {
    const size_t image = out_.image_begin.size();
    EQUIPOISE_CHECK(image < image_tokens_.size(), "more placeholders than the ",
                    image_tokens_.size(), " pictures");
    Add(owner_.image_start_);
    out_.image_begin.push_back(std::ssize(out_.ids));
    for (int64_t i = 0; i < image_tokens_[image]; ++i) Add(owner_.image_token_);
    Add(owner_.image_end_);
  }

  const ChatTemplate& owner_;
  const std::vector<int64_t>& image_tokens_;
  EncodedConversation out_;
};

ChatTemplate::ChatTemplate(const std::string& name, const std::string& system,
                           const Tokenizer* tokenizer)
    : name_(name), system_(system), tokenizer_(tokenizer) {
  const ChatTemplateForm* form = FindChatTemplate(name);
  if (form == nullptr) {
    std::string known;
    for (const std::string& each : ChatTemplateNames()) known += (known.empty() ? "" : ", ") + each;
    throw ConfigError("data.template: '" + name + "' is unknown; use one of " + known);
  }
  if (system_.empty()) system_ = form->system;
  if (form->begin != nullptr) begin_.push_back(RequiredToken(*tokenizer, form->begin, name));
  if (form->tokenizer_begin && tokenizer->begin_token()) {
    begin_.push_back(*tokenizer->begin_token());
  }
  start_of_turn_ = RequiredToken(*tokenizer, "<|im_start|>", name);
  end_of_turn_ = RequiredToken(*tokenizer, "<|im_end|>", name);
  image_token_ = tokenizer->TokenId("<IMG_CONTEXT>").value_or(-1);
  image_start_ = tokenizer->TokenId("<img>").value_or(-1);
  image_end_ = tokenizer->TokenId("</img>").value_or(-1);
  for (const char* mark : {"<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>"}) {
    if (const auto id = tokenizer->TokenId(mark)) marks_.Add({.content = mark, .id = *id}, mark);
  }
  if (form->newline) newline_ = tokenizer->Encode("\n", /*parse_special=*/false);
  answer_header_ = tokenizer->Encode("assistant\n", /*parse_special=*/false).size();
}

EncodedConversation ChatTemplate::Encode(const std::vector<Turn>& turns,
                                         const std::vector<int64_t>& image_tokens,
                                         bool with_answer_prompt) const {
  if (!image_tokens.empty()) {
    for (const char* token : {"<IMG_CONTEXT>", "<img>", "</img>"}) {
      RequiredToken(*tokenizer_, token, name_);
    }
  }
  Writer writer(*this, image_tokens);
  writer.Begin();
  const bool own_system = !turns.empty() && turns.front().role == Role::kSystem;
  if (!own_system && !system_.empty()) writer.AddTurn(Role::kSystem, system_, false);
  for (const Turn& turn : turns) writer.AddTurn(turn.role, turn.text, turn.trained);
  if (with_answer_prompt) writer.AddAnswerPrompt();
  return writer.Finish();
}

uint64_t ChatTemplate::fingerprint() const {
  std::string key = name_ + '\0' + system_ + '\0' + std::to_string(kVersion) + '\0' +
                    std::to_string(tokenizer_->fingerprint());
  for (const int32_t id : begin_) key += '\0' + std::to_string(id);
  return XXH3_64bits(key.data(), key.size());
}

}  // namespace equipoise
