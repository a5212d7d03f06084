#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/host_copies.h"

namespace equipoise {

// Activations of a layer that lie in host memory between its forward and its backward (activation
// offload). A GPU copies them beside what it computes, on a stream of their own, to pinned memory
// and back. The tensors stay as they are: their storages are emptied and filled again in place, so
// whatever shares one sees it too, and nothing may read it in between.
class OffloadedActivations {
 public:
  // Starts to copy the storages of these tensors, each once, but for those that `others` share.
  // REQUIRES: one device.
  OffloadedActivations(const std::vector<at::Tensor>& tensors,
                       const std::vector<at::Tensor>& others);
  OffloadedActivations(const OffloadedActivations&) = delete;
  OffloadedActivations& operator=(const OffloadedActivations&) = delete;

  // Waits for the copies and frees the device's memory; nothing the second time, or after Return().
  void Release();
  // Takes memory of the device again and starts the copies back; nothing where the memory was never
  // freed, nor the second time.
  void Return();
  // What the device is given from now on has the activations. REQUIRES: Return() was called.
  void Wait();

  // Bytes in host memory.
  int64_t bytes() const { return bytes_; }

 private:
  struct Copy {
    c10::Storage storage;
    at::Tensor host;
  };

  std::vector<Copy> copies_;
  at::Device device_{at::kCPU};
  StreamMark there_, back_;
  bool released_ = false, returned_ = false;
  int64_t bytes_ = 0;
};

}  // namespace equipoise
