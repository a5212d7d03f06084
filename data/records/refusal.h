#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "data/records/record.h"

namespace equipoise {

// The way out of nested checks of a record; Guarded() catches it.
struct Refusal {
  Defect defect;
  std::string reason;
};

[[noreturn]] inline void Refuse(Defect defect, std::string reason) {
  throw Refusal{defect, std::move(reason)};
}

// A name from a record, for a reason.
inline std::string ShownName(std::string_view name) { return ShownText(name, 120); }

// The record that `fill` fills, or the defect by which it is refused.
template <class Fill>
ParsedRecord Guarded(const Fill& fill) {
  ParsedRecord parsed;
  try {
    fill(parsed.record);
  } catch (const Refusal& refusal) {
    parsed.defect = refusal.defect;
    parsed.reason = refusal.reason;
  } catch (const DataError& error) {
    parsed.defect = Defect::kBadJson;
    parsed.reason = error.what();
  }
  return parsed;
}

}  // namespace equipoise
