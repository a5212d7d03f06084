#pragma once

#include <string>

#include "configs/base/error.h"

namespace equipoise {

// A failure that all ranks throw with the same message, because they have agreed on it or computed
// it from the same numbers. Only rank 0 prints it.
class CollectiveRunError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace equipoise
