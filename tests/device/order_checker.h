#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/nccl_api.h"
#include "tests/device/gpu_stand_in.h"
#include "tests/device/order_trace.h"

namespace equipoise::testing {

// Writes down what ranks ask of their GPUs, rank r of GPU r: the operations of the stand-in of
// GPUs, the calls of NCCL's table, and the waits of the program. One at a time lives.
//
// What a wait of the host tells is taken from Communicator's Work, not from the events that some
// thread has looked at: so it does not depend on which thread was first.
class OrderChecker : public MemoryObserver {
 public:
  explicit OrderChecker(int ranks);
  ~OrderChecker() override;

  NcclApi Watched(NcclApi api, int rank);
  std::unique_ptr<Communicator> Watched(std::unique_ptr<Communicator> group, int rank);

  // After the ranks have ended.
  const Trace& trace(int rank) const;
  int ranks() const { return static_cast<int>(ranks_.size()); }

  void Used(int gpu, void* stream, const std::string& operation,
            const std::vector<MemoryUse>& uses) override;
  void Taken(int gpu, void* stream, const MemoryUse& block) override;
  void Freed(int gpu, void* stream, const MemoryUse& block,
             const std::vector<void*>& others) override;
  void Recorded(int gpu, void* stream, const void* event) override;
  void StreamWaited(int gpu, void* stream, const void* event) override;
  void HostWaitedFor(int gpu, const void* event) override;
  void HostWaited(int gpu, void* stream, const std::string& operation) override;

  class Rank;

 private:
  // Null for a GPU that no rank has.
  Rank* RankOf(int gpu) const;

  std::vector<std::shared_ptr<Rank>> ranks_;
};

}  // namespace equipoise::testing
