#pragma once

#include <string>

namespace equipoise {

// The XXH3-64 of the running program's file, as 16 hexadecimal digits. Ranks with different hashes
// run different programs, which may compute different plans. Throws RunError when the file cannot
// be read.
std::string ProgramHash();

}  // namespace equipoise
