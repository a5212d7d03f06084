#pragma once

#include <functional>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Runs `work` on every rank. If it throws on any, returns on all ranks the message of the lowest
// rank that failed. Collective: an all-reduce, and a broadcast on failure. `work` must not use
// `world`.
std::optional<std::string> AgreeOnError(Communicator& world, const std::function<void()>& work);
// AgreeOnError(); on failure every rank throws the message as a CollectiveRunError or a DataError.
void AgreeOrThrowRunError(Communicator& world, const std::function<void()>& work);
void AgreeOrThrowDataError(Communicator& world, const std::function<void()>& work);

// Returns the text of rank `root` on every rank. Collective.
std::string BroadcastText(Communicator& world, const std::string& text, int root);

}  // namespace equipoise
