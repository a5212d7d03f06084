#pragma once

#include <functional>
#include <string>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Runs `work` on this rank and then waits for all. When it threw anywhere, every rank throws the
// exception, an AgreedRunError or a
// DataError, with the text of the lowest rank that failed. Collective: one all-reduce,
// and a broadcast on failure. `work` must not use `world`.
void AgreeOrThrowRunError(Communicator& world, const std::function<void()>& work);
void AgreeOrThrowDataError(Communicator& world, const std::function<void()>& work);

// The text of rank `root` on every rank. Collective.
std::string BroadcastText(Communicator& world, const std::string& text, int root);

}  // namespace equipoise
