#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Runs `work` on every rank. If it throws on any, every rank throws the message of the lowest rank
// that failed as a CollectiveRunError. Collective: an all-reduce, and a broadcast on failure.
// `work` must not use `world`.
void AgreeOrThrowRunError(Communicator& world, const std::function<void()>& work);
// As above for work that reads data: the message is returned, or thrown as a DataError, unless it
// says nothing of the data: a RunError's or one of no memory is thrown as a CollectiveRunError.
std::optional<std::string> AgreeOnDataError(Communicator& world, const std::function<void()>& work);
void AgreeOrThrowDataError(Communicator& world, const std::function<void()>& work);

// Runs `work` on the items 0 to count - 1, shared out in turn: rank r has r, r + size(), ... If it
// throws on any, returns or throws on all ranks as AgreeOnDataError() the message of the first of
// these items; a rank leaves out what comes after its own first. `work` calls `alive` at least
// every few seconds: ranks meet there now and then, so that none waits for longer than the others
// need between two calls, however unequal the shares are. `work` must not use `world`. REQUIRES:
// the same count on every rank.
using ItemWork = std::function<void(int64_t item, const std::function<void()>& alive)>;
std::optional<std::string> AgreeOnItems(Communicator& world, int64_t count, const ItemWork& work);

// Returns the text of rank `root` on every rank. Collective.
std::string BroadcastText(Communicator& world, const std::string& text, int root);

}  // namespace equipoise
