#pragma once

#include <memory>

#include "parallel/comm/nccl_api.h"

namespace equipoise {

// NCCL and CUDA for ranks that are threads and tensors of the CPU. Streams, events and blocking are
// as on GPUs; sums go round a ring with a rounding at every hop. A call that would hang or corrupt
// data there returns an error here, and last_error() says why:
//   - ranks whose calls on a communicator differ in kind, size, type, operation or root;
//   - two ranks that call their common collectives in different orders, over all communicators;
//   - transfers that wait for each other in a circle, for want of a group or by their order;
//   - a copy to the host into memory that is not pinned, a call for another rank's device.
class NcclStandIn {
 public:
  explicit NcclStandIn(int ranks);
  ~NcclStandIn();

  // What rank `rank` calls.
  NcclApi Api(int rank);

  // Neither destroyed nor aborted.
  int OpenCommunicators() const;
  int Aborted() const;
  int PinnedBuffers() const;

 private:
  class Cluster;
  std::shared_ptr<Cluster> cluster_;
};

}  // namespace equipoise
