#include "data/text/chat_template.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "configs/base/error.h"
#include "data/text/jinja_template.h"
#include "data/text/template_tokens.h"
#include "data/text/thoughts.h"
#include "data/text/utf8.h"

namespace equipoise {
namespace {

constexpr std::string_view kPlaceholder = "<image>", kVideo = "<video>";
// Part of the fingerprint: raise it when Encode gives other ids for the same input.
constexpr uint64_t kVersion = 2;

// Tokens of a picture in one kind of vocabulary.
struct ImageMarks {
  const char *start, *token, *end, *video;  // empty: none
};

// The model's, else the first whose `token` a tokenizer has; Qwen2.5's for text have the last too.
constexpr std::array<ImageMarks, 3> kImageMarks = {
    {{"<img>", "<IMG_CONTEXT>", "</img>", ""},
     {"", "<image>", "", "<video>"},
     {"<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"}}};

// Marks of things and boxes in pictures: special tokens, but of the text and not of its form.
constexpr std::array<std::string_view, 12> kGroundingMarks = {"<ref>",
                                                              "</ref>",
                                                              "<box>",
                                                              "</box>",
                                                              "<quad>",
                                                              "</quad>",
                                                              "<|object_ref_start|>",
                                                              "<|object_ref_end|>",
                                                              "<|box_start|>",
                                                              "<|box_end|>",
                                                              "<|quad_start|>",
                                                              "<|quad_end|>"};

bool IsOneOf(const auto& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool IsMarkOfPictures(std::string_view token) {
  return std::any_of(kImageMarks.begin(), kImageMarks.end(), [&](const ImageMarks& marks) {
    return IsOneOf(
        std::array<std::string_view, 4>{marks.start, marks.token, marks.end, marks.video}, token);
  });
}

// What Python's str.strip() and Jinja's `trim` cut off.
bool IsSpace(uint32_t point) { return IsWhiteSpace(point) || (point >= 0x1C && point <= 0x1F); }

size_t SkipSpace(std::string_view text, bool (*is_space)(uint32_t)) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = ReadCodePoint(text, at);
    if (!is_space(point.value)) break;
    at += point.bytes;
  }
  return at;
}

// The end of the text without the white space at its end.
size_t EndWithoutSpace(std::string_view text, bool (*is_space)(uint32_t)) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_space(ReadCodePoint(text, begin).value)) break;
    end = begin;
  }
  return end;
}

// What Qwen2.5's and Qwen3's templates put behind the system text.
std::string ToolsText(std::string_view tools) {
  return fmt::format(
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
      "provided with function signatures within <tools></tools> XML tags:\n<tools>\n{}\n</tools>"
      "\n\nFor each function call, return a json object with function name and arguments within "
      "<tool_call></tool_call> XML tags:\n<tool_call>\n{{\"name\": <function-name>, "
      "\"arguments\": <args-json-object>}}\n</tool_call>",
      tools);
}

// PlaceImages() for a placeholder and the word for what it stands for.
std::string Place(std::vector<Turn>& turns, size_t things, std::string_view placeholder,
                  std::string_view word) {
  size_t placeholders = 0, elsewhere = 0;
  for (const Turn& turn : turns)
    (turn.role == Role::kUser ? placeholders : elsewhere) += CountOf(placeholder, turn.text);
  if (placeholders == things) return "";
  const auto user = std::find_if(turns.begin(), turns.end(),
                                 [](const Turn& turn) { return turn.role == Role::kUser; });
  if (placeholders == 0 && elsewhere == 0 && user != turns.end()) {
    std::string shown;
    for (size_t i = 0; i < things; ++i) shown.append(placeholder).append("\n");
    user->text.insert(0, shown);
    return "";
  }
  if (placeholders == 0 && elsewhere > 0) {
    return fmt::format(
        "{} stands in a turn that is not the user's, for {} {}; write it in the "
        "user's, where they are shown",
        placeholder, things, word);
  }
  return fmt::format("{} {} in user turns for {} {}; write one {} for each", placeholders,
                     placeholder, things, word, placeholder);
}

}  // namespace

std::string PlaceImages(std::vector<Turn>& turns, size_t images) {
  return Place(turns, images, kPlaceholder, "pictures");
}

std::string PlaceVideos(std::vector<Turn>& turns, size_t videos) {
  for (Turn& turn : turns) turn.videos = videos > 0 && turn.role == Role::kUser;
  return Place(turns, videos, kVideo, "videos");
}

std::string Truncate(EncodedConversation& conversation, int64_t max_tokens) {
  if (std::ssize(conversation.ids) <= max_tokens) return "";
  if (!conversation.image_end.empty() && conversation.image_end.back() > max_tokens) {
    return fmt::format("the pictures end at token {}, behind max_tokens = {}",
                       conversation.image_end.back(), max_tokens);
  }
  conversation.ids.resize(static_cast<size_t>(max_tokens));
  conversation.trained.resize(static_cast<size_t>(max_tokens));
  return "";
}

// Writes one conversation. Text is collected until a token follows, and then cut into words
// together: that is how a rendered template is encoded.
class ChatTemplate::Writer {
 public:
  Writer(const ChatTemplate& owner, const std::vector<int64_t>& image_tokens)
      : owner_(owner), image_tokens_(image_tokens) {
    Add(owner.begin_);
  }

  void AddSystem(std::string_view text) {
    Add(owner_.system_turn_.before);
    AddContent(Trimmed(text, owner_.form_->system_turn));
    Add(owner_.system_turn_.after);
  }

  // `system`: a text that stands in this turn; empty: none.
  void AddUser(const Turn& turn, std::string_view system) {
    // The order of pictures and videos is that of the record's, so neither moves beside the other.
    const bool videos = turn.frames || (turn.videos && CountOf(kVideo, turn.text) > 0);
    const bool moves = owner_.options_.image_first && !videos;
    const std::string moved = moves ? WithImageFirst(turn.text) : "";
    std::string_view text = moves ? moved : turn.text;
    Add(owner_.user_.before);
    if (!system.empty()) AddSystem(system);
    if (system.empty()) text = Trimmed(text, owner_.form_->user);
    AddWithImages(text, turn.videos);
    if (owner_.form_->user.trim && !system.empty()) {  // the two are trimmed as one text
      section_.resize(EndWithoutSpace(section_, IsSpace));
    }
    Add(owner_.user_.after);
  }

  // `follows_prompt`: behind all that a prompt for it ends with.
  void AddAnswer(std::string_view text, bool trained, bool follows_prompt) {
    Add(owner_.answer_.before);
    if (follows_prompt) Add(owner_.thought_);
    SetTrained(trained);
    Add(owner_.lead_);
    AddContent(Trimmed(text, owner_.form_->answer));
    Add(owner_.answer_.after);
    SetTrained(false);
    Add(owner_.rest_);
  }

  EncodedConversation Finish(bool with_answer_prompt) {
    Add(with_answer_prompt ? owner_.answer_.before : owner_.finish_);
    if (with_answer_prompt) Add(owner_.thought_);
    Flush();
    EQUIPOISE_CHECK(out_.image_begin.size() == image_tokens_.size(), out_.image_begin.size(),
                    " placeholders for ", image_tokens_.size(), " pictures");
    return std::move(out_);
  }

 private:
  static std::string_view Trimmed(std::string_view text, const TurnForm& form) {
    return form.trim ? WithoutSpace(text) : text;
  }

  static std::string WithImageFirst(const std::string& text) {
    const size_t at = text.find(kPlaceholder);
    if (CountOf(kPlaceholder, text) != 1) return text;
    std::string whole = text;
    whole.erase(at, kPlaceholder.size());
    whole = std::string(kPlaceholder) + "\n" + std::string(WithoutSpace(whole));
    return std::string(WithoutSpace(whole));
  }

  static std::string_view WithoutSpace(std::string_view text) {
    text = text.substr(0, EndWithoutSpace(text, IsSpace));
    return text.substr(SkipSpace(text, IsSpace));
  }

  void SetTrained(bool trained) {
    if (trained == trained_) return;
    trained_ = trained;
    changes_.push_back(section_.size());
  }

  void Add(const Pieces& pieces) {
    for (const Piece& piece : pieces) {
      if (piece.token < 0) {
        AddText(piece.text);
      } else {
        AddToken(piece.token);
      }
    }
  }

  void AddText(std::string_view text) {
    if (section_.empty() && strip_) text.remove_prefix(SkipSpace(text, IsWhiteSpace));
    section_ += text;
  }

  // An added token takes the white space beside it, where its flags say so.
  void AddToken(int32_t id) {
    const AddedToken* added = owner_.tokenizer_->FindAdded(id);
    if (added != nullptr && added->lstrip) {
      section_.resize(EndWithoutSpace(section_, IsWhiteSpace));
    }
    Flush();
    out_.ids.push_back(id);
    out_.trained.push_back(trained_ ? 1 : 0);
    strip_ = added != nullptr && added->rstrip;
  }

  // Encodes the text collected. Its first tokens, as many as the text up to a change of `trained_`
  // has by itself, are on the one side of it.
  void Flush() {
    const auto encode = [&](std::string_view text) {
      return owner_.tokenizer_->Encode(text, /*parse_special=*/false, out_.ids.empty());
    };
    bool trained = changes_.size() % 2 == 0 ? trained_ : !trained_;  // at the section's start
    const std::vector<int32_t> ids = encode(section_);
    size_t done = 0;
    const auto mark_to = [&](size_t end) {
      out_.trained.insert(out_.trained.end(), end - done, trained ? 1 : 0);
      done = end;
    };
    for (const size_t change : changes_) {
      const std::string_view before = std::string_view(section_).substr(0, change);
      mark_to(std::max(done, std::min(ids.size(), encode(before).size())));
      trained = !trained;
    }
    mark_to(ids.size());
    out_.ids.insert(out_.ids.end(), ids.begin(), ids.end());
    section_.clear();
    changes_.clear();
  }

  void AddContent(std::string_view text) {
    owner_.in_texts_.Split(
        text, [&](std::string_view part) { AddText(part); }, [&](int32_t id) { AddToken(id); });
  }

  void AddWithImages(std::string_view text, bool videos) {
    const auto add = [&](std::string_view part) {
      if (!owner_.form_->pictures_only) AddContent(part);
    };
    while (true) {
      const size_t image = text.find(kPlaceholder);
      const size_t video = videos ? text.find(kVideo) : std::string_view::npos;
      const size_t at = std::min(image, video);
      add(text.substr(0, at));
      if (at == std::string_view::npos) return;
      AddImage(image < video ? owner_.image_token_ : owner_.video_token_);
      static_assert(kPlaceholder.size() == kVideo.size());
      text.remove_prefix(at + kPlaceholder.size());
    }
  }

  void AddImage(int32_t token) {
    const size_t image = out_.image_begin.size();
    EQUIPOISE_CHECK(image < image_tokens_.size(), "more placeholders than the ",
                    image_tokens_.size(), " pictures");
    if (owner_.image_start_ >= 0) AddToken(owner_.image_start_);
    for (int64_t i = 0; i < image_tokens_[image]; ++i) {
      AddToken(token);
      if (i == 0) out_.image_begin.push_back(std::ssize(out_.ids) - 1);
    }
    if (owner_.image_end_ >= 0) AddToken(owner_.image_end_);
    out_.image_end.push_back(std::ssize(out_.ids));
  }

  const ChatTemplate& owner_;
  const std::vector<int64_t>& image_tokens_;
  EncodedConversation out_;
  std::string section_;          // text since the last token
  std::vector<size_t> changes_;  // where in it `trained_` has changed
  bool trained_ = false;
  bool strip_ = false;  // the last token takes the white space behind it
};

ChatTemplate::ChatTemplate(const std::string& name, const std::string& system,
                           const Tokenizer* tokenizer, int64_t image_token,
                           const ChatOptions& options)
    : form_(FindChatTemplate(name)), system_(system), tokenizer_(tokenizer), options_(options) {
  if (form_ == nullptr) {
    std::string known;
    for (const std::string& each : ChatTemplateNames()) known += (known.empty() ? "" : ", ") + each;
    throw ConfigError("data.template: '" + name + "' is unknown; use one of " + known);
  }
  if (system_.empty()) system_ = form_->system;
  RequireTokens(*form_, *tokenizer);
  other_begin_ = TakesOtherBegin(*form_, *tokenizer);
  if (!other_begin_) begin_ = Cut(form_->begin);
  if ((form_->tokenizer_begin || other_begin_) && tokenizer->begin_token()) {
    begin_.push_back({*tokenizer->begin_token(), ""});
  }
  lead_ = Cut(form_->lead);
  if (form_->thinking == Thinking::kOff) thought_ = Cut(kNoThought);
  rest_ = Cut(form_->rest);
  finish_ = Cut(form_->finish);
  system_turn_ = Cut(form_->system_turn);
  user_ = Cut(form_->user);
  answer_ = Cut(form_->answer);
  if (!form_->end_of_turn.empty()) {
    end_of_turn_ = RequiredToken(*tokenizer, form_->end_of_turn, name);
  }
  FindImageTokens(image_token);
  FindTokensOfTexts();
}

void ChatTemplate::FindTokensOfTexts() {
  for (const std::string_view mark : kGroundingMarks) {
    if (const auto id = tokenizer_->TokenId(mark))
      in_texts_.Add({.content = std::string(mark), .id = *id}, mark);
  }
  for (const AddedToken& token : tokenizer_->added_tokens()) {
    if (!token.special && !IsMarkOfPictures(token.content) &&
        !IsOneOf(form_->tokens, token.content))
      in_texts_.Add(token, token.content), added_in_texts_.push_back(token.id);
  }
}

ChatTemplate::Pieces ChatTemplate::Cut(std::string_view text) const {
  Pieces pieces;
  tokenizer_->SplitAdded(
      text,
      [&](std::string_view part) {
        pieces.push_back({-1, std::string(part)});
      },
      [&](int32_t id) {
        pieces.push_back({id, ""});
      });
  return pieces;
}

void ChatTemplate::FindImageTokens(int64_t named) {
  for (size_t i = 0; i < kImageMarks.size(); ++i) {
    const ImageMarks& marks = kImageMarks[i];
    const auto find = [this](const char* text) { return tokenizer_->TokenId(text).value_or(-1); };
    const int32_t token = find(marks.token);
    const bool first = image_marks_ < 0;
    if (token < 0 || (!first && token != named)) continue;
    first_marks_ = first;
    image_token_ = token;
    image_marks_ = static_cast<int>(i);
    image_start_ = find(marks.start);
    image_end_ = find(marks.end);
    video_token_ = *marks.video == '\0' ? -1 : find(marks.video);
  }
}

std::string_view ChatTemplate::image_token_text() const {
  return kImageMarks[static_cast<size_t>(std::max(image_marks_, 0))].token;
}

std::string_view ChatTemplate::video_token_text() const {
  return kImageMarks[static_cast<size_t>(std::max(image_marks_, 0))].video;
}

EncodedConversation ChatTemplate::Encode(const std::vector<Turn>& turns,
                                         const std::vector<int64_t>& image_tokens,
                                         bool with_answer_prompt, std::string_view tools) const {
  if (!image_tokens.empty()) {
    if (image_marks_ < 0) {
      for (const ImageMarks& marks : kImageMarks) {
        if (LeavesOut(*tokenizer_, marks.token))
          RequiredToken(*tokenizer_, marks.token, form_->name);
      }
      RefuseTemplate(*tokenizer_, form_->name,
                     "a token for pictures (<IMG_CONTEXT>, <image> or <|image_pad|>)");
    }
    const ImageMarks& marks = kImageMarks[static_cast<size_t>(image_marks_)];
    for (const std::string_view token : {marks.start, marks.end}) {
      if (!token.empty()) RequiredToken(*tokenizer_, token, form_->name);
    }
    const bool videos =
        std::any_of(turns.begin(), turns.end(), [](const Turn& turn) { return turn.videos; });
    if (videos && video_token_ < 0) {
      RefuseTemplate(*tokenizer_, form_->name,
                     fmt::format("a token for videos ({})", video_token_text()),
                     video_token_text());
    }
  }
  const bool own_system = !turns.empty() && turns.front().role == Role::kSystem;
  std::string system = own_system ? turns.front().text : system_;
  if (!tools.empty()) {
    EQUIPOISE_CHECK(takes_tools(), form_->name);
    system += (system.empty() ? "" : "\n\n") + ToolsText(tools);
  }
  const auto is_user = [](const Turn& turn) { return turn.role == Role::kUser; };
  auto holder = turns.end();  // of the system text
  if (form_->place == SystemPlace::kFirstUser) {
    holder = std::find_if(turns.begin(), turns.end(), is_user);
  } else if (form_->place == SystemPlace::kLastUser) {
    const auto last = std::find_if(turns.rbegin(), turns.rend(), is_user);
    if (last != turns.rend()) holder = std::prev(last.base());
  }
  Writer writer(*this, image_tokens);
  if (form_->place == SystemPlace::kTurn && (own_system || !system.empty())) {
    writer.AddSystem(system);
  }
  const auto last_answer = std::find_if(
      turns.rbegin(), turns.rend(), [](const Turn& turn) { return turn.role == Role::kAssistant; });
  const size_t last_question = form_->thinking == Thinking::kOn ? LastQuestion(turns) : 0;
  const auto said = [&](size_t turn, bool learned) {
    const std::string& text = turns[turn].text;
    if (form_->thinking == Thinking::kNone) return text;
    if (form_->thinking == Thinking::kOff) return std::string(WithoutThought(text));
    return QwenAnswer(text, learned, turn < last_question);
  };
  for (auto turn = turns.begin() + (own_system ? 1 : 0); turn != turns.end(); ++turn) {
    if (turn->role == Role::kAssistant) {
      const bool counts = !options_.last_answer || &*turn == &*last_answer;
      const bool trained = turn->trained && counts;
      const bool learned = trained && !with_answer_prompt;
      writer.AddAnswer(said(static_cast<size_t>(turn - turns.begin()), learned), trained, learned);
    } else if (turn->role == Role::kSystem && form_->place == SystemPlace::kTurn) {
      writer.AddSystem(turn->text);
    } else {
      writer.AddUser(*turn, turn == holder ? system : "");
    }
  }
  return writer.Finish(with_answer_prompt);
}

std::string ChatTemplate::Jinja() const {
  std::string begin(other_begin_ ? "" : form_->begin);
  if ((form_->tokenizer_begin || other_begin_) && tokenizer_->begin_token())
    begin += tokenizer_->Decode({*tokenizer_->begin_token()}, /*skip_special=*/false);
  return JinjaTemplate(*form_, {system_, begin, image_token_text()});
}

uint64_t ChatTemplate::fingerprint() const {
  std::string key = std::string(form_->name) + '\0' + system_ + '\0' + std::to_string(kVersion) +
                    '\0' + std::to_string(tokenizer_->fingerprint());
  for (const Piece& piece : begin_) key += '\0' + std::to_string(piece.token);
  if (!first_marks_) key += '\0' + std::string(image_token_text());
  for (const int32_t id : added_in_texts_) key += "\ntext " + std::to_string(id);
  if (options_.image_first) key += '\0' + std::string("picture first");
  if (options_.last_answer) key += '\0' + std::string("last answer");
  return XXH3_64bits(key.data(), key.size());
}

}  // namespace equipoise
