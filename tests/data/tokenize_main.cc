// Ids of the lines of standard input, or the texts of lists of ids, for the comparison with Hugging
// Face's tokenizers.
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

}  // namespace

int main(int argc, char** argv) {
  const bool decode = argc == 3 && std::string(argv[2]) == "--decode";
  if (argc != 2 && !decode) {
    std::cerr << "usage: tokenize_main FOLDER_OR_FILE [--decode] < TEXT\n";
    return 2;
  }
  try {
    std::ios::sync_with_stdio(false);
    const equipoise::Tokenizer tokenizer = equipoise::Tokenizer::Read(argv[1]);
    if (decode) {
      DecodeLines(tokenizer);
    } else {
      equipoise::TokenizeLines(tokenizer, std::cin, std::cout);
    }
  } catch (const equipoise::UserError& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
