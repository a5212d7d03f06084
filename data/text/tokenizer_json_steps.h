#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "data/text/decoder.h"
#include "data/text/metaspace.h"
#include "data/text/normalizer.h"
#include "data/text/pretokenizer.h"

namespace equipoise {

// Readers of the text-cutting parts of a tokenizer.json. All throw a DataError that begins with
// `source:` for parts that are damaged or not supported.

// The steps of a normalizer; normal forms in a row as the one that they amount to.
std::vector<NormalizerStep> ReadNormalizer(const Json& normalizer, const std::string& source);
// The token that a post-processor puts before a single text: a template's first, or `cls` of BERT's
// and RoBERTa's; empty: none.
std::string ReadTemplateBegin(const Json& post_processor, const std::string& source);

// Of byte-level BPE.
PreTokenizerSpec ReadPreTokenizer(const Json& pre_tokenizer, const std::string& source);
void CheckDecoder(const Json& decoder, const std::string& source);

// Of a unigram model: steps that cut the text, into `spec`, and a Metaspace behind them.
std::optional<Metaspace> ReadUnigramSteps(const Json& pre_tokenizer, const std::string& source,
                                          PreTokenizerSpec& spec);

// Of WordPiece.
PreTokenizerSpec ReadWordPieceSteps(const Json& pre_tokenizer, const std::string& source);

// Of BPE with byte fallback; the decoder of unigram and WordPiece too.
std::optional<Metaspace> ReadMetaspace(const Json& pre_tokenizer, const std::string& source);
std::vector<DecoderStep> ReadDecoder(const Json& decoder, const std::string& source);

}  // namespace equipoise
