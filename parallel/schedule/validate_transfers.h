#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "parallel/schedule/validate.h"

namespace equipoise {

// Where the ops of a schedule are listed, for look-ups.
class OpIndex {
 public:
  explicit OpIndex(const Schedule& schedule);

  // Ascending positions on the rank; `joined` makes no difference.
  std::vector<OpPlace> Places(int rank, const Op& op) const;
  bool Has(int rank, const Op& op) const { return !Places(rank, op).empty(); }

 private:
  std::vector<std::vector<std::pair<Op, int>>> ops_;  // [rank] sorted
};

// The parts of FindFault() that are about S and R. REQUIRES: the ops belong to the schedule.

// Each value that crosses ranks has a pair, none is superfluous. A schedule without transfers has
// no fault.
std::optional<ScheduleFault> FindTransferFault(const Schedule& schedule, const OpIndex& index);
// Any two ranks list what they share in the same order. REQUIRES: no FindTransferFault(), no
// doubles.
std::optional<ScheduleFault> FindTransferOrderFault(const Schedule& schedule);

}  // namespace equipoise
