#pragma once

#include <string>

#include "configs/base/json.h"
#include "data/text/tokenizer.h"

namespace equipoise {

// A small byte-level BPE as the value of a tokenizer.json: the 256 bytes (ids 0..255 in byte
// order), a few merges (ids from 256 on), ChatML's and InternVL's special tokens (ids from 300 on),
// NFC, Qwen2's pattern.
Json TinyTokenizerJson();

// The same with LLaVA-OneVision's <image> (320) and <video> (321), the last of its added tokens, in
// place of InternVL's token for pictures.
Json TinyVideoTokenizerJson();

// BERT's tokenizer.json on a few pieces: [PAD], [UNK], [CLS], [SEP] and [MASK] from 0 on, then
// words.
Json TinyWordPieceJson();
// T5's kind, with a charsmap that replaces nothing.
Json TinyUnigramJson();

// Writes `json` into a temporary file and reads it. The file is named `tokenizer.json`.
Tokenizer ReadTokenizerText(const std::string& text);
inline Tokenizer ReadTokenizerJson(const Json& json) { return ReadTokenizerText(json.dump()); }

}  // namespace equipoise
