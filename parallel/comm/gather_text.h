#pragma once

#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise {

// The texts of all ranks of the group, in rank order, on every rank. Collective.
std::vector<std::string> GatherText(Communicator& group, const std::string& text);

}  // namespace equipoise
