#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise::testing {

// A stand-in for GPUs, linked into a test: tensors "on CUDA" without CUDA or a GPU. Every operation
// on them is run by LibTorch's CPU kernel on the same numbers, so that results can be compared. It
// is as strict as a GPU where that finds faults:
//   - their memory cannot be read by the host: data_ptr() is an address that faults;
//   - an operation on tensors of several devices throws, save for element-wise ones that take a
//     scalar of the CPU;
//   - a copy to the host beside it is for pinned memory alone, and done when the host waits for an
//     event behind it (late_copies.h);
//   - what LibTorch has for CUDA alone (flash attention) takes what it takes there, and throws
//     otherwise.
// It says nothing about the kernels of CUDA nor about speed; its streams have always done their
// work (who has to wait for whom: order_checker.h). A program linked to it must not load CUDA.
// `kStandInGpus` of them; backward runs on a thread of each, as on GPUs.
constexpr int kStandInGpus = 16;

// So far, by all threads: operations, those that give numbers to the host, and how often the host
// had to wait for a GPU (for these, for copies from memory that is not pinned, to synchronise).
struct GpuCounts {
  int64_t operations = 0, reads = 0, flash_attentions = 0, waits = 0;
};
GpuCounts CountsOfStandIn();

// Some bytes of the stand-in's memory, by data_ptr(), that an operation uses.
struct MemoryUse {
  uintptr_t begin, end;
  bool write;
};

// Hears what ATen's streams do. Called by the thread that asks for it, of any rank. Streams by
// CUDA's handle, null for the default one.
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  virtual void Used(int gpu, void* stream, const std::string& operation,
                    const std::vector<MemoryUse>& uses) = 0;
  virtual void Taken(int gpu, void* stream, const MemoryUse& block) = 0;
  // Memory that `stream` has taken; `others` were told to use it too (recordDataPtrOnStream).
  virtual void Freed(int gpu, void* stream, const MemoryUse& block,
                     const std::vector<void*>& others) = 0;
  virtual void Recorded(int gpu, void* stream, const void* event) = 0;
  virtual void StreamWaited(int gpu, void* stream, const void* event) = 0;
  // The host has waited for an event; for all that a stream held.
  virtual void HostWaitedFor(int gpu, const void* event) = 0;
  virtual void HostWaited(int gpu, void* stream, const std::string& operation) = 0;
};
// Of all GPUs from now on; null: none.
void Observe(MemoryObserver* observer);
MemoryObserver* Observer();

// The operations that the stand-in has run, such as "aten::add.Tensor".
std::vector<std::string> OperationsOfStandIn();

// The address behind data_ptr() of a tensor of the stand-in, for tests that play CUDA's copies.
void* HostAddress(const void* data);

}  // namespace equipoise::testing
