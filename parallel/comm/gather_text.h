#pragma once

#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise {

// The texts of all ranks of the group, in rank order, on every rank. Collective.
std::vector<std::string> GatherText(Communicator& group, const std::string& text);

// The texts of all ranks, in rank order, on rank 0; none elsewhere. For what is too long to be held
// by every rank. Collective.
std::vector<std::string> CollectText(Communicator& group, const std::string& text);

}  // namespace equipoise
