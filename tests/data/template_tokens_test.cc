// A folder's own chat template, and what a form needs of a tokenizer.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "configs/base/error.h"
#include "data/text/chat_template.h"
#include "data/text/folder_template.h"
#include "data/text/jinja_template.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/tiny_tokenizer.h"

namespace equipoise {
namespace {

using Ids = std::vector<int32_t>;

TEST_CASE("a folder's own template is told by its text", "[data][cpu]") {
  const TemporaryFolder folder;
  const auto name = [&]() -> std::string {
    const ChatTemplateForm* form = FolderTemplate(folder.path());
    return form == nullptr ? "" : std::string(form->name);
  };
  const auto write = [&](const char* file, const std::string& text) {
    std::ofstream(folder.path() + "/" + file) << text;
  };
  CHECK(name().empty());
  write("tokenizer_config.json", "{");  // its reader says what is wrong with it
  CHECK(name().empty());
  write("tokenizer_config.json", R"({"chat_template": "USER: ASSISTANT:"})");
  CHECK(name() == "vicuna_v1");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "x"},
        {"name": "default", "template": "<|start_header_id|> <|eot_id|>"}]})");
  CHECK(name() == "llama-3");
  // A tokenizer reads its own file; over an encoder a processor reads those of pictures.
  write("chat_template.json", R"({"chat_template": "<|im_start|> </think>"})");
  CHECK(name() == "llama-3");
  write("config.json", R"({"vision_config": {}})");
  CHECK(name() == "qwen3");
  write("processor_config.json", R"({"chat_template": "USER: ASSISTANT:"})");
  CHECK(name() == "vicuna_v1");
  write("chat_template.jinja", "<|im_start|> <|im_end|>");
  CHECK(name() == "chatml");
  write("chat_template.jinja", "nothing");
  CHECK(name().empty());
}

TEST_CASE("what a folder's template writes beyond its form is told", "[data][cpu]") {
  const std::string mistral =
      "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
      "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
      "{{ message['content'] + eos_token }}{% endif %}{% endfor %}";
  struct Row {
    std::string jinja, form, note;  // a part of the note
  };
  for (const Row& row :
       {Row{"<|start_header_id|> <|eot_id|>", "llama-3", ""},
        {"<|start_header_id|> <|eot_id|> Cutting Knowledge Date", "llama-3", "writes two dates"},
        {mistral, "mistral-v1", "is an early one of Mistral's"},
        {mistral + "<<SYS>>", "llama-2", ""},
        {"<|im_start|> <|im_end|> </think>", "qwen3", ""},
        {"</think> <|im_end|> '<|im_start|>assistant\\n<think>\\n'", "qwen3",
         "begins a thought in every prompt"},
        {"'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'", "phi-4", ""},
        {"{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
         "{{ '<|assistant|>' }}{{ eos_token }}",
         "phi-4-mini", ""},
        {"[INST] ", "", ""}}) {
    CAPTURE(row.jinja);
    const ChatTemplateForm* form = RecognizeTemplate(row.jinja);
    CHECK((form == nullptr ? "" : std::string(form->name)) == row.form);
    const std::string note(TemplateNote(row.jinja));
    CHECK(note.empty() == row.note.empty());
    CHECK(note.find(row.note) != note.npos);
  }
}

TEST_CASE("what only looks like a form is not known to render it", "[data][cpu]") {
  const std::string turn = "{{ '<|im_start|>' + message['role'] + '\\n' }}{{ '<|im_end|>\\n' }}";
  const std::string tools = "{{- '<|im_start|>system\\n' }}# Tools" + turn;
  struct Row {
    std::string jinja, form;
    bool known = false;
  };
  for (const Row& row : {
           Row{turn, "chatml"},
           {tools, "chatml", true},
           {tools + "{{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}", "chatml"},
           {turn + "{{ '<IMG_CONTEXT>\\n' }}", "chatml", true},
           {turn + "</think>", "qwen3"},
           {tools + "</think>", "qwen3", true},
           {tools + std::string(kQwen25System), "qwen2_5", true},
           {"<|im_start|>system\n" + std::string(kQwen2System) + "<|im_end|>\n", "qwen2-vl", true},
           // LLaVA-OneVision's has no line breaks: it is that of no form.
           {"{{'<|im_start|>' + message['role'] + ' '}}{{ '<image>\\n' }}{{'<|im_end|>'}}", ""},
           {"{{ message['role'].upper() + ': ' }}{{ 'ASSISTANT:' }}", "vicuna_v1"},
           {"[INST] <<SYS>>", "llama-2"},
           {"<<SYS>> {{ '[INST] ' }} selectattr('type', 'equalto', 'image') {{' [/INST]' }}",
            "llava-mistral"},
           {"<|start_header_id|> <|eot_id|>", "llama-3"},
           {JinjaTemplate(*FindChatTemplate("vicuna_v1"), {"", "", ""}), "vicuna_v1", true},
       }) {
    CAPTURE(row.jinja);
    const ChatTemplateForm* form = RecognizeTemplate(row.jinja);
    CHECK((form == nullptr ? "" : std::string(form->name)) == row.form);
    CHECK(RendersItsForm(row.jinja) == row.known);
  }
}

TEST_CASE("a template names what it lacks", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  CHECK_THROWS_AS(ChatTemplate("vicuna", "", &tokenizer), ConfigError);
  Json json = TinyTokenizerJson();
  json["added_tokens"].erase(5);
  const Tokenizer text_only = ReadTokenizerJson(json);
  const ChatTemplate chat("chatml", "", &text_only);
  CHECK(chat.Encode({{Role::kUser, "a"}}, {}).ids.size() > 0);
  CHECK_THROWS_WITH(chat.Encode({{Role::kUser, "<image>"}}, {1}), Catch::Contains("<IMG_CONTEXT>"));
  json["added_tokens"].erase(2);
  const Tokenizer lacking = ReadTokenizerJson(json);
  CHECK_THROWS_WITH(ChatTemplate("chatml", "", &lacking),
                    Catch::StartsWith(lacking.source() + ": ") && Catch::Contains("<|im_end|>"));
  CHECK_THAT(lacking.source(), Catch::EndsWith("/tokenizer.json"));
  CHECK_THROWS_WITH(ChatTemplate("chatml", "", &lacking), Catch::Contains("; use another data.t"));
  json["added_tokens"].push_back({{"id", 310}, {"content", "<s>"}, {"special", true}});
  json["added_tokens"].push_back({{"id", 311}, {"content", "</s>"}, {"special", true}});
  const Tokenizer llama = ReadTokenizerJson(json);
  CHECK_THROWS_WITH(ChatTemplate("chatml", "", &llama),
                    Catch::EndsWith("which the vocabulary lacks; use the data.template that the "
                                    "model was trained with; the vocabulary fits vicuna_v1, "
                                    "llama-2, mistral-v1, mistral-v3, llava-mistral"));
}

TEST_CASE("a token without a row is refused where the form or a picture needs it", "[data][cpu]") {
  const TemporaryFolder folder;
  Json json = TinyTokenizerJson();
  json["added_tokens"].push_back({{"id", 306}, {"content", "<think>"}, {"special", false}});
  const std::string path = folder.Write("tokenizer.json", json.dump());
  const std::vector<Turn> turns = {{Role::kUser, "<image>"}, {Role::kAssistant, "<think>us"}};
  const Tokenizer whole = Tokenizer::Read(path), no_think = Tokenizer::Read(path, {}, 306);
  const ChatTemplate one("chatml", "", &whole), other("chatml", "", &no_think);
  CHECK(one.fingerprint() != other.fingerprint());
  const Ids all = one.Encode(turns, {1}).ids, text = other.Encode(turns, {1}).ids;
  CHECK(std::count(all.begin(), all.end(), 306) == 1);
  CHECK(std::count(text.begin(), text.end(), 306) == 0);
  CHECK(whole.Decode(all, false) == no_think.Decode(text, false));
  const Tokenizer no_picture = Tokenizer::Read(path, {}, 305),
                  no_end = Tokenizer::Read(path, {}, 302);
  CHECK_THROWS_WITH(ChatTemplate("chatml", "", &no_picture).Encode(turns, {1}),
                    Catch::Contains("needs the token <IMG_CONTEXT>, for whose id 305 the model's"));
  CHECK_THROWS_WITH(ChatTemplate("chatml", "", &no_end),
                    Catch::Contains("needs the token <|im_end|>, for whose id 302 the model's"));
}

}  // namespace
}  // namespace equipoise
