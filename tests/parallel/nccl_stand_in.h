#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "parallel/comm/nccl_api.h"

namespace equipoise {

// NCCL and CUDA for ranks that are threads and tensors of the CPU. NCCL's streams, events and
// blocking are as on GPUs; the compute stream, which the CPU plays, is never behind, so whether a
// call waits for it is a question for tests/device/order_checker.h. Sums go round a ring with a
// rounding at every hop. A call that would hang or corrupt data on GPUs returns an error here, and
// last_error() says why:
//   - ranks whose calls on a communicator differ in kind, size, type, operation or root;
//   - two ranks that call their common collectives in different orders, over all communicators;
//   - transfers that wait for each other in a circle, for want of a group or by their order;
//   - two ranks that destroy their common communicators in different orders;
//   - a communicator that a rank never destroys nor aborts: for a minute, the others wait there;
//   - a wait while no rank has asked for anything for a minute;
//   - a question for the errors of a communicator that was destroyed or aborted;
//   - a copy to the host into memory that is not pinned, a call for another rank's device.
class NcclStandIn {
 public:
  // How many streams of a rank share a queue of the hardware (CUDA_DEVICE_MAX_CONNECTIONS): none,
  // or all. In one queue a record behind a call holds up all streams until the call has ended.
  enum class Queues { kEach, kOne };
  explicit NcclStandIn(int ranks, Queues queues = Queues::kEach);
  ~NcclStandIn();

  // What rank `rank` calls.
  NcclApi Api(int rank);

  // Neither destroyed nor aborted.
  int OpenCommunicators() const;
  // The same when they are `count`, or a minute has passed: after a failure, threads free them.
  int AwaitOpen(int count) const;
  int Aborted() const;
  int PinnedBuffers() const;
  size_t MostPinnedBytes() const;  // at once, so far
  // What was refused so far, a line each; those who destroy a communicator do not look.
  std::string Refused() const;

 private:
  class Cluster;
  std::shared_ptr<Cluster> cluster_;
};

}  // namespace equipoise
