#include "data/records/defect.h"

namespace equipoise {

std::string_view DefectName(Defect defect) {
  switch (defect) {
    case Defect::kNone:
      return "none";
    case Defect::kBadJson:
      return "bad_json";
    case Defect::kBadField:
      return "bad_field";
    case Defect::kNoConversation:
      return "no_conversation";
    case Defect::kPlaceholders:
      return "placeholders";
    case Defect::kImageMissing:
      return "image_missing";
    case Defect::kImageOutside:
      return "image_outside";
    case Defect::kImageUnreadable:
      return "image_unreadable";
    case Defect::kImageTooLarge:
      return "image_too_large";
    case Defect::kTooManyTokens:
      return "too_many_tokens";
    case Defect::kNothingTrained:
      return "nothing_trained";
    case Defect::kLineTooLong:
      return "line_too_long";
    case Defect::kNoVision:
      return "no_vision";
    case Defect::kImageDamaged:
      return "image_damaged";
    case Defect::kTokenizer:
      return "tokenizer_gave_up";
    case Defect::kTooLong:
      return "too_long";
    case Defect::kEnd:
      break;
  }
  return "unknown";
}

}  // namespace equipoise
