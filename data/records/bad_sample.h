#pragma once

#include <cstdint>
#include <string>

namespace equipoise {

// A record that could not be used, and why.
struct BadSample {
  int64_t sample = 0;  // its number in the cost index
  std::string file;    // the annotations
  int64_t line = 0;
  std::string id;
  std::string reason;
};

}  // namespace equipoise
