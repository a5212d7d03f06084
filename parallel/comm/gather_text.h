#pragma once

#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise {

// All-gathers a text: those of all ranks of the group, in rank order, on every rank. Collective.
std::vector<std::string> GatherText(Communicator& group, const std::string& text);

// Gathers a text on rank 0: those of all ranks, in rank order; none elsewhere. For texts too long
// to be held by every rank. Collective.
std::vector<std::string> CollectText(Communicator& group, const std::string& text);

}  // namespace equipoise
