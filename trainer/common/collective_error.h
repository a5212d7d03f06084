#pragma once

#include <string>

#include "configs/base/error.h"

namespace equipoise {

// A failure while running that every rank reports with the same text, because they have agreed on
// it or have decided alike from the same numbers: one line, rank 0's, is enough.
class CollectiveRunError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace equipoise
