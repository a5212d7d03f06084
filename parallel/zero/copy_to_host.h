#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace equipoise {

// A copy from a device to pinned memory of the host, which runs while the host does other work: on
// the compute stream, in order with all that was given to the device before.
class CopyToHost {
 public:
  CopyToHost() = default;
  // Starts it. REQUIRES: `to` is pinned, as large as `from`, and lives until Wait().
  CopyToHost(const at::Tensor& from, at::Tensor to);

  // Returns when `to` has the numbers, and all that was given to the device before is done.
  void Wait();

 private:
  std::optional<c10::Event> event_;
};

// Memory of the host that devices copy from and to beside other work. Throws RunError where the
// machine gives none. Small pieces lose nothing: LibTorch rounds sizes up to powers of two.
at::Tensor PinnedMemory(int64_t numel, at::ScalarType dtype);

}  // namespace equipoise
