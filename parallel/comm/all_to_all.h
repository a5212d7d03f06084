#pragma once

#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Sends inputs[r] to rank r of the group, for each r, and receives what it has for this rank in
// outputs[r]; a rank's own input is copied. Every rank gives tensors of the sizes that its peers
// expect: contiguous, zero elements are legal and travel nowhere. On GPUs the transfers are one
// group; Connect() for all pairs comes first. Returns as soon as the results can be computed with,
// as Work::WaitOnStream() does; throws RunError.
void AllToAll(Communicator& group, std::vector<at::Tensor>& outputs,
              const std::vector<at::Tensor>& inputs);

// Every pair of ranks of a group, for Communicator::Connect().
std::vector<std::pair<int, int>> AllPairs(int ranks);

}  // namespace equipoise
