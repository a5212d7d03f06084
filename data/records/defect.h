#pragma once

#include <cstdint>
#include <string_view>

namespace equipoise {

// Why a record cannot be used, as far as the record and the heads of its files show. The numbers
// are stored in the cost index: append only.
enum class Defect : uint16_t {
  kNone = 0,
  kBadJson,         // not JSON, too deep, duplicate keys, invalid UTF-8
  kBadField,        // a field of the wrong type, or missing
  kNoConversation,  // no turns, or turns in an impossible order
  kPlaceholders,    // other number of <image> than pictures
  kImageMissing,
  kImageOutside,     // a path that leaves the image folder
  kImageUnreadable,  // the head of the file is no picture, or of a kind that is not supported
  kImageTooLarge,    // more pixels or bytes than the limits
  kTooManyTokens,    // its pictures do not fit in max_tokens
  kNothingTrained,   // no trained token (after truncation)
  kLineTooLong,
  kNoVision,      // pictures, and a model without a vision part
  kImageDamaged,  // does not decode; known only once it is loaded, so in no index
  kTokenizer,     // the tokenizer gave up: too much work, or too long once normalized
  kTooLong,       // more than max_tokens, where such records are dropped: not bad
  kEnd,           // number of defects, none of them
};

// The name of a defect, such as "image_missing".
std::string_view DefectName(Defect defect);

}  // namespace equipoise
