#pragma once

#include <string>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/validate.h"

namespace equipoise {

// A fault at a place, with the message "rank 1, op 7 (1B0): MESSAGE", or "rank 1, end: MESSAGE" for
// the place after the last op.
ScheduleFault FaultAt(const Schedule& schedule, const OpPlace& place, const std::string& message);

// An excerpt of the lists around a place, which is marked: 3 ops and 3 ranks on each side. Shows
// positions, not times, as the lists may be invalid:
//     op   rank 0   rank 1
//      2    0F2      1B3
//      3    0F3     >1B2<
std::string GridAround(const Schedule& schedule, const OpPlace& place);

}  // namespace equipoise
