// Ids of the lines of standard input, for the comparison with Hugging Face's tokenizers.
#include <iostream>

#include "configs/base/error.h"
#include "data/text/tokenize_lines.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenize_main FOLDER_OR_FILE < TEXT\n";
    return 2;
  }
  try {
    std::ios::sync_with_stdio(false);
    equipoise::TokenizeLines(equipoise::Tokenizer::Read(argv[1]), std::cin, std::cout);
  } catch (const equipoise::UserError& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
