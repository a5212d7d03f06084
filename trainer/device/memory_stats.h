#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace equipoise {

// Makes LibTorch's CPU allocations go through a counter for the rest of the process. Call it once,
// first thing in main; what was allocated before is not counted.
void CountCpuMemory();

struct CpuMemory {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;         // since the start of the process
  int64_t marked_peak_bytes = 0;  // since MarkCpuMemory(), or the start
};
// Bytes in LibTorch's CPU tensors; zeros without CountCpuMemory(). Thread-safe.
CpuMemory GetCpuMemory();
// marked_peak_bytes begins anew. REQUIRES: no other thread allocates meanwhile.
void MarkCpuMemory();

// Bytes of the tensors of a device; a GPU's are counted by LibTorch's caching allocator.
CpuMemory GetMemory(at::Device device);
void MarkMemory(at::Device device);

// Gives the system back what malloc keeps of freed memory: memory that lives long, such as the
// kernels compiled for matrix products, lies between freed tensors and keeps holes open. Takes 10
// to 20 ms, and those pages are zeroed anew when they are used again.
void ReturnFreeMemory();

// The largest resident set of this process so far (VmHWM), its libraries included; 0 where the
// system does not tell.
int64_t PeakRssBytes();

}  // namespace equipoise
