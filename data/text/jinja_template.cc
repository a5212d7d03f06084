#include "data/text/jinja_template.h"

#include <fmt/format.h>

#include "data/text/thoughts.h"

// Every tag has dashes, so that the line breaks between tags are no part of what is rendered: that
// is the strings alone.

namespace equipoise {
namespace {

constexpr std::string_view kComment = "{#- Equipoise's data.template ";

constexpr std::string_view kSetSystem = "{%- set system = '";

// A string of Jinja.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

// An expression's value without the white space around it, where the turn's form says so.
std::string Trimmed(const std::string& expression, bool trim) {
  return trim ? fmt::format("({}) | trim", expression) : expression;
}

// The text of a speaker's turn, as an expression.
std::string TurnText(const TurnForm& turn, const std::string& content) {
  return fmt::format("{} ~ ({}) ~ {}", Quoted(turn.before), Trimmed(content, turn.trim),
                     Quoted(turn.after));
}

// Macros `content`, the text of a message, and `shown`, that of a user's, where pictures stand. A
// message's `reasoning_content` is its thought where the form has thoughts.
std::string Macros(const ChatTemplateForm& form, std::string_view picture) {
  std::string whole = "message['content']", part = "part['text']";
  std::string image = Quoted(std::string(picture) + "\n");
  if (form.pictures_only) {
    image = Quoted(picture);
    whole = fmt::format("{} * message['content'].count({})", image, image);
    part = "''";
  }
  const bool thinks = form.thinking != Thinking::kNone;
  const char* thought = thinks ? R"(  {%- if message['reasoning_content'] is string -%}
    {{- '<think>\n' ~ message['reasoning_content'].strip('\n') ~ '\n</think>\n\n' -}}
  {%- endif -%}
)"
                               : "";
  return fmt::format(R"({{%- macro content(message) -%}}
  {{%- if message['tool_calls'] -%}}
    {{{{- raise_exception('tool_calls: functions have no place here') -}}}}
  {{%- endif -%}}
{thought}  {{%- if message['content'] is string -%}}
    {{{{- message['content'] -}}}}
  {{%- else -%}}
    {{%- for part in message['content'] -%}}
      {{%- if part['type'] != 'text' -%}}
        {{{{- raise_exception(message['role'] ~ ': text alone has a place here') -}}}}
      {{%- endif -%}}
      {{{{- part['text'] -}}}}
    {{%- endfor -%}}
  {{%- endif -%}}
{{%- endmacro -%}}
{{%- macro shown(message) -%}}
  {{%- if message['content'] is string -%}}
    {{{{- {whole} -}}}}
  {{%- else -%}}
    {{%- for part in message['content'] -%}}
      {{%- if part['type'] == 'image' -%}}
        {{{{- {image} -}}}}
      {{%- elif part['type'] == 'text' -%}}
        {{{{- {part} -}}}}
      {{%- else -%}}
        {{{{- raise_exception(part['type'] ~ ': give its frames as images') -}}}}
      {{%- endif -%}}
    {{%- endfor -%}}
  {{%- endif -%}}
{{%- endmacro -%}}
)",
                     fmt::arg("thought", thought), fmt::arg("whole", whole), fmt::arg("part", part),
                     fmt::arg("image", image));
}

// Sets `system`, and `turns` to the messages behind it.
std::string SystemText(std::string_view system) {
  return fmt::format(R"({{%- if tools -%}}
  {{{{- raise_exception('tools: functions have no place here') -}}}}
{{%- endif -%}}
{{%- if messages[0]['role'] == 'system' -%}}
  {{%- set system = content(messages[0]) -%}}
  {{%- set turns = messages[1:] -%}}
{{%- else -%}}
  {{%- set system = {} -%}}
  {{%- set turns = messages -%}}
{{%- endif -%}}
)",
                     Quoted(system));
}

// Sets `holder.at` to the number of the user turn that has the system text.
std::string Holder(SystemPlace place) {
  if (place == SystemPlace::kTurn) return "";
  return fmt::format(R"({{%- set holder = namespace(at=-1) -%}}
{{%- for message in turns -%}}
  {{%- if message['role'] == 'user'{} -%}}
    {{%- set holder.at = loop.index0 -%}}
  {{%- endif -%}}
{{%- endfor -%}}
)",
                     place == SystemPlace::kFirstUser ? " and holder.at < 0" : "");
}

// The branches of a turn's role that are no answer's. Without a turn of its own, a system text
// behind the first is a user's turn.
std::string OtherTurns(const ChatTemplateForm& form) {
  const std::string system = TurnText(form.system_turn, "content(message)");
  const std::string user = TurnText(form.user, "shown(message)");
  if (form.place == SystemPlace::kTurn) {
    return fmt::format(R"(  {{%- elif message['role'] == 'system' -%}}
    {{{{- {} -}}}}
  {{%- elif message['role'] == 'user' -%}}
    {{{{- {} -}}}}
)",
                       system, user);
  }
  const std::string both = TurnText(form.system_turn, "system") + " ~ shown(message)";
  return fmt::format(R"(  {{%- elif message['role'] in ['system', 'user'] -%}}
    {{%- if loop.index0 == holder.at and system -%}}
      {{{{- {} -}}}}
    {{%- else -%}}
      {{{{- {} -}}}}
    {{%- endif -%}}
)",
                     TurnText(form.user, both), user);
}

// Ends a prompt where an answer is to have no thought, which the caller may say as to Qwen3's own
// template.
std::string EndOfPrompt(Thinking thinking) {
  if (thinking == Thinking::kNone) return "";
  const char* wanted =
      thinking == Thinking::kOn ? "enable_thinking is false" : "enable_thinking is not true";
  return fmt::format(" ~ ({} if {} else '')", Quoted(kNoThought), wanted);
}

// Macro `answer`, where all that is no prompt is trained. With thinking on it is QwenAnswer();
// `question.at`, the place of LastQuestion() in `turns`, is set for it.
std::string Thoughts(Thinking thinking) {
  if (thinking == Thinking::kNone) return "";
  if (thinking == Thinking::kOff) {
    return R"({%- macro answer(message) -%}
  {%- set text = content(message) -%}
  {%- set said = text.split('</think>')[-1].lstrip('\n') if '</think>' in text else text -%}
  {{- ('' if add_generation_prompt else '<think>\n\n</think>\n\n') ~ said -}}
{%- endmacro -%}
)";
  }
  return R"({%- macro answer(message, earlier) -%}
  {%- set text = content(message) -%}
  {%- set ends = text.split('</think>') -%}
  {%- set begins = text.split('<think>') -%}
  {%- set thought = ends[0].split('<think>')[-1].strip('\n') -%}
  {%- if add_generation_prompt and (earlier or not thought) -%}
    {{- ends[-1].lstrip('\n') if ends|length > 1 else text -}}
  {%- elif ends|length == 2 and (begins|length == 1 or
        (begins|length == 2 and begins[0].strip(' \n') == '' and '</think>' in begins[1])) -%}
    {{- '<think>\n' ~ thought ~ '\n</think>\n\n' ~ ends[1].lstrip('\n') -}}
  {%- elif not add_generation_prompt and ends|length == 1 and begins|length == 1 -%}
    {{- '<think>\n\n</think>\n\n' ~ text.lstrip('\n') -}}
  {%- else -%}
    {{- text -}}
  {%- endif -%}
{%- endmacro -%}
{%- set question = namespace(at=turns|length) -%}
{%- for message in turns -%}
  {%- set text = shown(message) if message['role'] == 'user' else '' -%}
  {%- set result = text.startswith('<tool_response>') and text.endswith('</tool_response>') -%}
  {%- if message['role'] == 'user' and not result -%}
    {%- set question.at = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
)";
}

std::string Turns(const ChatTemplateForm& form) {
  TurnForm answer = form.answer;
  const std::string before = std::string(answer.before) + std::string(form.lead);
  const std::string after = std::string(answer.after) + std::string(form.rest);
  answer.before = before;
  answer.after = after;
  const char* text = form.thinking == Thinking::kOn ? "answer(message, loop.index0 < question.at)"
                     : form.thinking == Thinking::kOff ? "answer(message)"
                                                       : "content(message)";
  return fmt::format(R"({{%- for message in turns -%}}
  {{%- if message['role'] == 'assistant' -%}}
    {{{{- {} -}}}}
{}  {{%- else -%}}
    {{{{- raise_exception(message['role'] ~ ': is none of system, user and assistant') -}}}}
  {{%- endif -%}}
{{%- endfor -%}}
)",
                     TurnText(answer, text), OtherTurns(form));
}

}  // namespace

std::string JinjaTemplate(const ChatTemplateForm& form, const JinjaTexts& texts) {
  std::string jinja = fmt::format("{}{} -#}}\n", kComment, form.name);
  jinja += Macros(form, texts.picture);
  jinja += SystemText(texts.system);
  if (!texts.begin.empty()) jinja += fmt::format("{{{{- {} -}}}}\n", Quoted(texts.begin));
  if (form.place == SystemPlace::kTurn) {
    jinja += fmt::format(R"({{%- if system or messages[0]['role'] == 'system' -%}}
  {{{{- {} -}}}}
{{%- endif -%}}
)",
                         TurnText(form.system_turn, "system"));
  }
  jinja += Holder(form.place) + Thoughts(form.thinking) + Turns(form);
  return jinja + fmt::format(R"({{%- if add_generation_prompt -%}}
  {{{{- {} -}}}}
{{%- else -%}}
  {{{{- {} -}}}}
{{%- endif -%}}
)",
                             Quoted(form.answer.before) + EndOfPrompt(form.thinking),
                             Quoted(form.finish));
}

std::optional<std::string> SystemOfJinjaTemplate(std::string_view jinja) {
  const size_t at = jinja.find(kSetSystem);
  if (FormOfJinjaTemplate(jinja) == nullptr || at == jinja.npos) return std::nullopt;
  std::string system;
  for (size_t i = at + kSetSystem.size(); i < jinja.size() && jinja[i] != '\''; ++i) {
    const bool escaped = jinja[i] == '\\' && i + 1 < jinja.size();
    if (escaped) ++i;
    system += escaped && jinja[i] == 'n' ? '\n' : jinja[i];
  }
  return system;
}

const ChatTemplateForm* FormOfJinjaTemplate(std::string_view jinja) {
  if (!jinja.starts_with(kComment)) return nullptr;
  jinja.remove_prefix(kComment.size());
  return FindChatTemplate(jinja.substr(0, jinja.find(' ')));
}

}  // namespace equipoise
