#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "parallel/schedule/validate.h"

namespace equipoise {

// An index from ops to the places where a schedule lists them.
class OpIndex {
 public:
  explicit OpIndex(const Schedule& schedule);

  // Positions of an op on a rank, ascending; `joined` is ignored.
  std::vector<OpPlace> Places(int rank, const Op& op) const;
  bool Has(int rank, const Op& op) const { return !Places(rank, op).empty(); }

 private:
  std::vector<std::vector<std::pair<Op, int>>> ops_;  // [rank] sorted
};

// The parts of FindFault() that concern S and R. REQUIRES: the ops belong to the schedule.

// Checks that each value that crosses ranks has one S and one R, and that none is superfluous. A
// schedule without transfers has no fault.
std::optional<ScheduleFault> FindTransferFault(const Schedule& schedule, const OpIndex& index);
// Checks that any two ranks list their common transfers in the same order. REQUIRES: no
// FindTransferFault(), no doubles.
std::optional<ScheduleFault> FindTransferOrderFault(const Schedule& schedule);

}  // namespace equipoise
