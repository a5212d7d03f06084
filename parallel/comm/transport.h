#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "parallel/comm/rank_status.h"

namespace equipoise {

// Group numbers begin with 0 and end below this: MPI's tags have room for no more.
constexpr int kMostGroups = 256;

// The label of transfers that match: those of equal tag between two ranks match in order.
struct Tag {
  int group = 0;
  bool point_to_point = false;
  int64_t sequence = 0;
};

// A transfer under way. Destroying it abandons the transfer.
class TransportRequest {
 public:
  virtual ~TransportRequest() = default;
  // Throws RunError ("rank 1 sent 16 bytes where 20 were expected") when the two ends do not fit.
  virtual bool Done() = 0;
};

// Moves bytes and statuses between the ranks of the world. Calls never overlap, except Sleep() and
// Wake().
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // `data` must live until the request is done or destroyed. Neither call blocks.
  virtual std::unique_ptr<TransportRequest> Send(int peer, const Tag& tag, const void* data,
                                                 size_t bytes) = 0;
  virtual std::unique_ptr<TransportRequest> Recv(int peer, const Tag& tag, void* data,
                                                 size_t bytes) = 0;
  // Sends this rank's status to all others; never blocks.
  virtual void Publish(const RankStatus& status) = 0;
  // Receives the statuses that others have published. `views` [rank].
  virtual void Collect(RankViews& views) = 0;
  // Whether transfers progress by themselves and their end wakes a Sleep(). False: they progress
  // only while they are polled (TransportRequest::Done()).
  virtual bool Notifies() const = 0;
  // Sleeps until something may have happened or `limit` has passed. For the communication thread.
  virtual void Sleep(std::chrono::microseconds limit) = 0;
  // Ends the Sleep() under way, or else the next one. Any thread may call it.
  virtual void Wake() = 0;
};

}  // namespace equipoise
