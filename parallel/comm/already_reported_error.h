#pragma once

#include "configs/base/error.h"

namespace equipoise {

// A failure about which this rank has nothing to add: the others have given it up and named it, or
// mpirun is ending the job. It goes to the log; the exit code is that of any RunError.
class AlreadyReportedError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace equipoise
