#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "configs/base/error.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Throws DataError, which begins with `what`, for a sequence that is longer than the model's
// window. Within it the window masks nothing, and attention is that of a model without one.
inline void RequireWithinWindow(const TextConfig& text, int64_t tokens, const std::string& what) {
  if (text.sliding_window == 0 || tokens <= text.sliding_window) return;
  throw DataError(
      fmt::format("{}: {} tokens are more than the model's sliding_window of {}, and attention in "
                  "a sliding window is not supported",
                  what, tokens, text.sliding_window));
}

}  // namespace equipoise
