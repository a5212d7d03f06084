#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace equipoise {

// Counts LibTorch's CPU allocations for the rest of the process. Call it once, first in main;
// earlier allocations are not counted.
void CountCpuMemory();

struct CpuMemory {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;         // since the start of the process
  int64_t marked_peak_bytes = 0;  // since MarkCpuMemory(), else since the start
  // GPUs: the peak that the caching allocator held of the device, tensors and what it keeps free
  // for the next ones, since MarkMemory(), else since the start.
  int64_t reserved_peak_bytes = 0;
};
// Bytes of LibTorch's CPU tensors; zeros without CountCpuMemory(). Thread-safe.
CpuMemory GetCpuMemory();
// Resets marked_peak_bytes to the current bytes. REQUIRES: no other thread allocates meanwhile.
void MarkCpuMemory();

// Likewise for the tensors of any device; on a GPU by LibTorch's caching allocator.
CpuMemory GetMemory(at::Device device);
void MarkMemory(at::Device device);

// Has malloc keep what is freed from here on for the next allocations, large ones too: a step needs
// what the step before it freed, and pages that go to the system are faulted in and zeroed again,
// which takes a tenth of a step of a small model.
void KeepFreedMemory();
// Returns freed memory that malloc has kept to the system (malloc_trim). Takes 10 to 20 ms.
void ReturnFreeMemory();
// The same where much more is kept than all tensors have ever taken at once beside those of now:
// where long-lived allocations, such as compiled matrix products, lie between freed ones.
void ReturnScatteredMemory();

// Returns what the caching allocator of a GPU keeps free to the device, which waits for it; nothing
// on a CPU. For when other sizes are needed from then on.
void ReturnFreeMemory(at::Device device);

// Ends what GetMemory() has counted of peaks on a GPU, after work that is not the run's.
void ForgetMemoryPeak(at::Device device);

// The peak resident set size of this process in bytes (VmHWM), libraries included; 0 if unknown.
int64_t PeakRssBytes();

}  // namespace equipoise
