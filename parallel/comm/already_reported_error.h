#pragma once

#include "configs/base/error.h"

namespace equipoise {

// A failure that this rank need not report: the other ranks have named it as the faulty one, or
// mpirun is ending the job. It goes to the log only; the exit code is that of any RunError.
class AlreadyReportedError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace equipoise
