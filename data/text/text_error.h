#pragma once

#include "configs/base/error.h"

namespace equipoise {

// A text that costs the tokenizer too much. Never ends a run: the record that holds it is left out.
class TextError : public DataError {
 public:
  using DataError::DataError;
};

}  // namespace equipoise
