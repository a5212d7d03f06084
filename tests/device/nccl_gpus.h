#pragma once

#include "parallel/comm/nccl_api.h"
#include "tests/device/order_checker.h"
#include "tests/parallel/nccl_stand_in.h"
#include "tests/parity/cell.h"

namespace equipoise::testing {

// Ranks with a stand-in of a GPU each, rank r on GPU r, and NCCL's stand-in between them.
class NcclGpus {
 public:
  // At most kStandInGpus ranks. `checker`, which may be null, hears of every use of memory.
  explicit NcclGpus(int ranks, OrderChecker* checker = nullptr,
                    NcclStandIn::Queues queues = NcclStandIn::Queues::kEach);

  // For one cell of as many ranks; must outlive its run.
  CellDevices devices();
  const NcclStandIn& stand_in() const { return stand_in_; }

 private:
  NcclStandIn stand_in_;
  OrderChecker* checker_;
};

// The table's functions for memory of the stand-in of GPUs.
NcclApi ForGpuMemory(NcclApi api);

}  // namespace equipoise::testing
