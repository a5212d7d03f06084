#pragma once

#include <cstdint>
#include <string>

#include "trainer/loop/run_context.h"
#include "trainer/outputs/run_folder.h"

namespace equipoise {

// RUN/kernels.RANK.json and RUN/kernels.txt: every operator and CUDA kernel of run.kernel_trace
// steps by LibTorch's own profiler, as a Chrome trace of each rank and a table. Where the profiler
// fails, a warning takes their place.
//
// Records from the third step of a start, since the first two bring up kernels and the allocator;
// from an earlier one where too few would be left.
class KernelTrace {
 public:
  // For a start after `done` steps.
  KernelTrace(RunContext& context, const RunFolder& folder, int64_t done);
  ~KernelTrace();
  KernelTrace(const KernelTrace&) = delete;
  KernelTrace& operator=(const KernelTrace&) = delete;

  // Begins to record where the step `number` is the first to be recorded.
  void BeforeStep(int64_t number);
  // Ends the recording and writes the files behind the last step to be recorded, or where the run
  // is to stop (`stop`). Collective where that is due.
  void AfterStep(int64_t number, bool stop);

 private:
  // Ends the recording; returns this rank's table, "" where there is none.
  std::string Write(int64_t steps);

  RunContext& context_;
  const RunFolder& folder_;
  int64_t first_ = 0, last_ = 0;  // steps to be recorded; 0: none, or done
  bool recording_ = false;
};

}  // namespace equipoise
