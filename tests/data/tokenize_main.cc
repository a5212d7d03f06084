// Ids of the lines of standard input, their number, or the texts of lists of ids, for comparisons
// with Hugging Face's tokenizers.
#include <iostream>
#include <string>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "data/text/tokenize_lines.h"

namespace {

// A line of input is {"ids": [...], "skip": bool}, one of output a JSON text.
void DecodeLines(const equipoise::Tokenizer& tokenizer) {
  for (std::string line; std::getline(std::cin, line);) {
    const equipoise::Json json = equipoise::ParseJson(line, "stdin");
    const auto ids = json["ids"].get<std::vector<int32_t>>();
    std::cout << equipoise::Json(tokenizer.Decode(ids, json["skip"].get<bool>())).dump() << '\n';
  }
}

void CountIds(const equipoise::Tokenizer& tokenizer) {
  size_t count = 0;
  for (std::string line; std::getline(std::cin, line);)
    count += tokenizer.Encode(line, /*parse_special=*/true).size();
  std::cout << count << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  const std::string option = argc == 3 ? argv[2] : "";
  if (argc != 2 && option != "--decode" && option != "--count") {
    std::cerr << "usage: tokenize_main FOLDER_OR_FILE [--decode | --count] < TEXT\n";
    return 2;
  }
  try {
    std::ios::sync_with_stdio(false);
    const equipoise::Tokenizer tokenizer = equipoise::Tokenizer::Read(argv[1]);
    if (option == "--decode") {
      DecodeLines(tokenizer);
    } else if (option == "--count") {
      CountIds(tokenizer);
    } else {
      equipoise::TokenizeLines(tokenizer, std::cin, std::cout);
    }
  } catch (const equipoise::UserError& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
