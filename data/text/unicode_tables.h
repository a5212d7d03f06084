#pragma once

#include <string_view>

namespace equipoise {

// Tables of Unicode as the pinned `tokenizers` (scripts/requirements.txt) knows it, written by
// scripts/make-unicode-tables. Ids must not depend on the Unicode version of a machine's libraries.
//
// `...Runs` give a number to each code point from 0 on: a letter for the number (kRunLetters), then
// the length of the run in decimal, left out where it is 1.
constexpr std::string_view kRunLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&*+,-./:;<=>@";

extern const std::string_view kCategoryNames;  // of the numbers, separated by spaces
extern const std::string_view kCategoryRuns;   // general categories
extern const std::string_view kScriptNames;
extern const std::string_view kScriptRuns;
extern const std::string_view kNumericRuns;    // 1: what the Digits pre-tokenizer cuts out
extern const std::string_view kWordRuns;       // 1: what a `single_word` token must not touch
extern const std::string_view kGraphemeRuns;   // grapheme cluster break classes; see charsmap.cc
extern const std::string_view kCombiningRuns;  // rank of the canonical combining class; 0: starter
extern const std::string_view kAccentRuns;     // 1: what StripAccents removes

// Of BertNormalizer and BertPreTokenizer.
extern const std::string_view kBertCleanRuns;        // 1: removed by clean_text; 2: made a space
extern const std::string_view kBertSpacedRuns;       // 1: set apart by handle_chinese_chars
extern const std::string_view kBertAccentRuns;       // 1: removed by strip_accents, after NFD
extern const std::string_view kBertPunctuationRuns;  // 1: a word of its own

// Full decompositions, in the order of code points. Each entry: the distance from the code point of
// the entry before, 2 * (number of parts) + (1 where NFC composes the parts again), the parts. A
// number is in base 26, its last digit a capital letter and the others small ones. Hangul syllables
// follow from arithmetic and are left out.
extern const std::string_view kCanonicalParts;
extern const std::string_view kCompatibleParts;  // where they differ from the canonical ones
// Lower case of what it changes, in the same form.
extern const std::string_view kLowercaseParts;

}  // namespace equipoise
