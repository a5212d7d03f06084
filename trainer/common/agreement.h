#pragma once

#include <functional>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Runs `work` on this rank and then waits for all. When it threw anywhere, every rank gets the text
// of the lowest rank that failed. Collective: one all-reduce, and a broadcast on failure. `work`
// must not use `world`.
std::optional<std::string> AgreeOnError(Communicator& world, const std::function<void()>& work);
// AgreeOnError(), and every rank throws the text as a CollectiveRunError or a DataError.
void AgreeOrThrowRunError(Communicator& world, const std::function<void()>& work);
void AgreeOrThrowDataError(Communicator& world, const std::function<void()>& work);

// The text of rank `root` on every rank. Collective.
std::string BroadcastText(Communicator& world, const std::string& text, int root);

}  // namespace equipoise
