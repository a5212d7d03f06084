#include "data/text/template_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "configs/base/error.h"
#include "data/text/folder_template.h"

namespace equipoise {
namespace {

const AddedToken* LeftOut(const Tokenizer& tokenizer, std::string_view token) {
  const std::vector<AddedToken>& all = tokenizer.left_out();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const AddedToken& each) { return each.content == token; });
  return found == all.end() ? nullptr : &*found;
}

// In texts of the template added tokens alone are tokens.
bool HasAdded(const Tokenizer& tokenizer, std::string_view token) {
  const auto id = tokenizer.TokenId(token);
  return id && tokenizer.FindAdded(*id) != nullptr;
}

// The forms whose tokens the tokenizer has; those that name none fit any.
std::vector<std::string_view> FittingForms(const Tokenizer& tokenizer) {
  std::vector<std::string_view> names;
  for (const ChatTemplateForm& form : kChatTemplates) {
    const bool other = TakesOtherBegin(form, tokenizer);
    const auto known = [&](std::string_view token) {
      return token.empty() || HasAdded(tokenizer, token) || (other && token == form.begin);
    };
    const bool names_some = std::any_of(form.tokens.begin(), form.tokens.end(),
                                        [](std::string_view token) { return !token.empty(); });
    if (names_some && std::all_of(form.tokens.begin(), form.tokens.end(), known))
      names.push_back(form.name);
  }
  return names;
}

// What to do about a template that does not fit.
std::string Advice(const Tokenizer& tokenizer, std::string_view name) {
  const std::string folder = std::filesystem::path(tokenizer.source()).parent_path().string();
  const ChatTemplateForm* own = FolderTemplate(folder);
  if (own != nullptr && own->name != name)
    return fmt::format("data.template={}, the folder's own", own->name);
  std::vector<std::string_view> fitting = FittingForms(tokenizer);
  std::erase(fitting, name);
  if (fitting.empty()) return "another data.template or tokenizer";
  return fmt::format("the data.template that the model was trained with; the vocabulary fits {}",
                     fmt::join(fitting, ", "));
}

}  // namespace

bool TakesOtherBegin(const ChatTemplateForm& form, const Tokenizer& tokenizer) {
  return form.other_begin && !HasAdded(tokenizer, form.begin) && tokenizer.begin_token();
}

bool LeavesOut(const Tokenizer& tokenizer, std::string_view token) {
  return LeftOut(tokenizer, token) != nullptr;
}

void RefuseTemplate(const Tokenizer& tokenizer, std::string_view name, const std::string& what,
                    std::string_view token) {
  if (const AddedToken* left_out = LeftOut(tokenizer, token)) {
    throw DataError(fmt::format(
        "{}: the template '{}' needs {}, for whose id {} the model's embedding has no row "
        "(vocab_size); use the model's own tokenizer",
        tokenizer.source(), name, what, left_out->id));
  }
  throw DataError(fmt::format("{}: the template '{}' needs {}, which the vocabulary lacks; use {}",
                              tokenizer.source(), name, what, Advice(tokenizer, name)));
}

int32_t RequiredToken(const Tokenizer& tokenizer, std::string_view token, std::string_view name) {
  const auto id = tokenizer.TokenId(token);
  if (!id) RefuseTemplate(tokenizer, name, fmt::format("the token {}", token), token);
  return *id;
}

void RequireTokens(const ChatTemplateForm& form, const Tokenizer& tokenizer) {
  for (const AddedToken& token : tokenizer.left_out()) {
    for (const std::string_view text :
         {form.begin, form.lead, form.rest, form.finish, form.system_turn.before,
          form.system_turn.after, form.user.before, form.user.after, form.answer.before,
          form.answer.after}) {
      if (text.find(token.content) == text.npos) continue;
      RefuseTemplate(tokenizer, form.name, fmt::format("the token {}", token.content),
                     token.content);
    }
  }
  for (const std::string_view token : form.tokens) {
    if (token.empty()) continue;
    if (token == form.begin && TakesOtherBegin(form, tokenizer)) continue;
    RequiredToken(tokenizer, token, form.name);
    if (!HasAdded(tokenizer, token))
      RefuseTemplate(tokenizer, form.name, fmt::format("{} as an added token", token));
  }
}

}  // namespace equipoise
