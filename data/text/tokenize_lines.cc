#include "data/text/tokenize_lines.h"

#include <istream>
#include <ostream>
#include <string>

namespace equipoise {

void TokenizeLines(const Tokenizer& tokenizer, std::istream& in, std::ostream& out) {
  std::string line, list;
  while (std::getline(in, line, '\n')) {
    list.assign(1, '[');
    for (const int32_t id : tokenizer.Encode(line, /*parse_special=*/true)) {
      if (list.size() > 1) list += ", ";
      list += std::to_string(id);
    }
    list += "]\n";
    out << list;
  }
}

}  // namespace equipoise
