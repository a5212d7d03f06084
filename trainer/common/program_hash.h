#pragma once

#include <string>

namespace equipoise {

// A hash of the file of this running program, in hexadecimal. Ranks with different ones were built
// from different sources, and may work out different plans. Throws RunError when it cannot be read.
std::string ProgramHash();

}  // namespace equipoise
