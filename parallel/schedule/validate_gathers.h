#pragma once

#include <optional>

#include "parallel/schedule/validate.h"

namespace equipoise {

// The part of FindFault() that concerns GATHER and FREE. In a schedule that has any, the passes of
// a rank do not overlap: a pass that a FREE ends runs between its GATHER, where it has one, and its
// FREE; where one pass is gathered for, all that read weights are; where one backward is freed, all
// that make weight gradients are. REQUIRES: the ops belong to the schedule, none is listed twice.
std::optional<ScheduleFault> FindGatherFault(const Schedule& schedule);

}  // namespace equipoise
