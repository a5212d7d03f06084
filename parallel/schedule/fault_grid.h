#pragma once

#include <string>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/validate.h"

namespace equipoise {

// "rank 1, op 7 (1B0): MESSAGE"; "rank 1, end: MESSAGE" for the place after the last op.
ScheduleFault FaultAt(const Schedule& schedule, const OpPlace& place, const std::string& message);

// A few ops of a few ranks around a place, which is marked; for lists that may be wrong, so that
// there is no time in it:
//     op   rank 0   rank 1
//      2    0F2      1B3
//      3    0F3     >1B2<
std::string GridAround(const Schedule& schedule, const OpPlace& place);

}  // namespace equipoise
