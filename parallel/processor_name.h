#pragma once

#include <string>

namespace equipoise {

// The name of this machine's processor as the system tells it, such as "AMD EPYC 7B13"; "unknown"
// where it does not.
std::string ProcessorName();

}  // namespace equipoise
