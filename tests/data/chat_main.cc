// Conversations of standard input as ids and loss mask, for the comparison with rendered templates.
#include <iostream>
#include <string>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "data/text/chat_template.h"
#include "data/text/folder_template.h"

namespace equipoise {
namespace {

Role RoleOf(const std::string& name) {
  return name == "system" ? Role::kSystem : name == "user" ? Role::kUser : Role::kAssistant;
}

// A line is {"jinja": a template}, which is told by its text; {"template", "system", "write":
// true}, which is written as one; or {"template", "system", "turns": [[role, text, trained]],
// "images": [...], "prompt", "tools"}.
Json Encoded(const Tokenizer& tokenizer, const Json& line) {
  const ChatTemplate chat(line["template"].get<std::string>(), line["system"].get<std::string>(),
                          &tokenizer);
  if (line.contains("write")) return chat.Jinja();
  std::vector<Turn> turns;
  for (const Json& turn : line["turns"]) {
    turns.push_back(
        {RoleOf(turn[0].get<std::string>()), turn[1].get<std::string>(), turn[2].get<bool>()});
  }
  const EncodedConversation out =
      chat.Encode(turns, line["images"].get<std::vector<int64_t>>(), line["prompt"].get<bool>(),
                  line.value("tools", std::string()));
  return {{"ids", out.ids},
          {"trained", out.trained},
          {"begin", out.image_begin},
          {"end", out.image_end},
          {"end_of_turn", chat.end_of_turn()}};
}

int Run(const std::string& path) {
  const Tokenizer tokenizer = Tokenizer::Read(path);
  for (std::string line; std::getline(std::cin, line);) {
    const Json json = ParseJson(line, "stdin");
    if (json.contains("jinja")) {
      const ChatTemplateForm* form = RecognizeTemplate(json["jinja"].get<std::string>());
      std::cout << Json(form == nullptr ? "" : std::string(form->name)).dump() << '\n';
    } else {
      std::cout << Encoded(tokenizer, json).dump() << '\n';
    }
  }
  return 0;
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: chat_main FOLDER_OR_FILE < LINES\n";
    return 2;
  }
  try {
    return equipoise::Run(argv[1]);
  } catch (const equipoise::UserError& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
