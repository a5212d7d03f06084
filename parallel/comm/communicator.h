#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}

namespace equipoise {

enum class ReduceOp { kSum, kMax, kMin };

// An operation under way. Copies refer to the same operation. Tensors given to the operation are
// kept alive by it and must not be touched before Wait() has returned.
class Work {
 public:
  using Clock = std::chrono::steady_clock;
  // What a backend knows about an operation. Any thread may call it.
  class State {
   public:
    virtual ~State() = default;
    virtual void Wait() = 0;
    virtual bool Done() const = 0;
    // When the last byte had come; meaningful once Done().
    virtual Clock::time_point FinishedAt() const = 0;
  };

  Work() = default;  // an operation that is already done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Returns when the operation is done. Throws RunError that names this rank, the operation, the
  // group, its sequence number and the peer that is waited for, when the deadline passes or a peer
  // is lost.
  void Wait();
  // Whether Wait() would return (or throw) at once.
  bool Done() const;
  // When the operation ended, for traces; the call's own time when it was done at once.
  // REQUIRES: Done().
  Clock::time_point FinishedAt() const;

 private:
  std::shared_ptr<State> state_;
  Clock::time_point created_ = Clock::now();
};

// The collectives and point-to-point transfers of one group of ranks.
//
// Operations are asynchronous: they start when called (a collective after those of its group before
// it) and end when their Work says so. Meanwhile they move on while this rank waits for any of
// them, and after ProgressInBackground(). All ranks of a group call its collectives in the same
// order; transfers between two ranks match in order. Any number may be outstanding and be waited
// for in any order. Tensors are contiguous; zero elements are legal. A group of one is an ordinary
// group whose operations return done.
//
// Reductions are summed in fp32 (fp32, bf16 and fp16 tensors), in rank order, and rounded once: the
// result is bitwise the same on every rank and in every CPU backend, and does not depend on the
// size of the message. fp64 and int64 tensors are reduced in their own type.
//
// Not thread-safe: one thread of a rank (the one that computes) calls it.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // For messages: "world", "data", "pipeline", ...
  virtual const std::string& name() const = 0;

  // Reduces `tensor` over the group, in place.
  virtual Work AllReduce(at::Tensor& tensor, ReduceOp op) = 0;
  // output[size() * n] = the inputs [n] of all ranks in rank order. `input` may be this rank's
  // slice of `output`.
  virtual Work AllGather(at::Tensor& output, const at::Tensor& input) = 0;
  // output[n] = this rank's slice of the reduction of inputs [size() * n]. `output` may be this
  // rank's slice of `input`.
  virtual Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  virtual Work Broadcast(at::Tensor& tensor, int root) = 0;
  // `peer` is another rank of this group.
  virtual Work Send(const at::Tensor& tensor, int peer) = 0;
  virtual Work Recv(at::Tensor& tensor, int peer) = 0;
  // What this rank computes from now on, such as "3B5, vision_tower.layers.0 to .3"; empty: nothing
  // to tell. Other ranks name it when they wait for this one in vain.
  virtual void Announce(const std::string& compute);
  // The rank computes from now on, and what is under way shall move on beside that until it waits
  // again. Without this call it does so every 20 milliseconds only, where bytes move while they are
  // asked for (MPI): a second thread on the core of a rank that waits anyway would cost more than
  // it brings.
  virtual void ProgressInBackground();
  // Prepares Send() and Recv() between these pairs of ranks, both ways. Collective; the same list
  // on every rank. Needed once, before the first transfer of GPU tensors, at a moment when none is
  // under way (setting up a connection would wait for it); does nothing on the CPU.
  virtual void Connect(const std::vector<std::pair<int, int>>& pairs);
  // The ranks of equal `color`, ordered by `key` and then rank; collective over this group.
  virtual std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) = 0;
};

// Returns when every rank of the group has called it.
void Barrier(Communicator& group);

struct CommOptions {
  // An operation that makes no progress for so long fails with the peer's name.
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
  // A send ends only when its receive has begun, so that an order of transfers that works by luck
  // of buffering deadlocks in tests. Ranks as threads always do so.
  bool synchronous_sends = false;
  // Longer messages travel in pieces; MPI counts bytes in 31 bits.
  int64_t piece_bytes = int64_t{1} << 30;
};

}  // namespace equipoise
