#pragma once

#include <iosfwd>

#include "data/text/tokenizer.h"

namespace equipoise {

// Writes one JSON list of ids for each line of `in`. Lines end at \n alone (a \r stays in the
// text); the last one may lack it; an empty line gives []. Special tokens in the text are
// recognized.
void TokenizeLines(const Tokenizer& tokenizer, std::istream& in, std::ostream& out);

}  // namespace equipoise
