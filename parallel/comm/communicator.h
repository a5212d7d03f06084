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

// Elementwise reductions.
enum class ReduceOp { kSum, kMax, kMin };

// The handle of an asynchronous operation, as torch.distributed's Work. Copies refer to the same
// operation. The operation keeps its tensors alive; until Wait() has returned, or WaitOnStream()
// for what the device does from then on, they must not be touched.
class Work {
 public:
  using Clock = std::chrono::steady_clock;
  // A backend's side of an operation. Any thread may call it.
  class State {
   public:
    virtual ~State() = default;
    virtual void Wait() = 0;
    virtual void WaitOnStream() { Wait(); }
    virtual bool Done() const = 0;
    // When the last byte had arrived; meaningful once Done().
    virtual Clock::time_point FinishedAt() const = 0;
  };

  Work() = default;  // an operation that is already done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Blocks until the operation is done. Throws RunError that names this rank, the operation, the
  // group, its sequence number and the missing peer, when the deadline passes or a peer is lost.
  void Wait();
  // Orders what this rank's device computes from now on behind the operation; the host goes on
  // where the operation runs on the device too, and waits elsewhere (as on CPUs). Throws as Wait()
  // does for what has failed already. What fails later fails by the same deadline and ends the
  // waiting of the device; the next call of the group, or of any other, throws.
  void WaitOnStream();
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
// Operations are asynchronous: they start when called (a collective, after the earlier ones of its
// group) and end when their Work is done. In between they progress while this rank waits for any of
// them, and after ProgressInBackground(). All ranks of a group call its collectives in the same
// order; transfers between two ranks match in order. Any number may be outstanding, and be waited
// for in any order. Tensors are contiguous; zero elements are legal. A group of one is an ordinary
// group whose operations are done at once.
//
// Reductions of fp32, bf16 and fp16 tensors are summed in fp32, in rank order, and rounded once:
// the result is bitwise the same on every rank and in every CPU backend, and does not depend on the
// size of the message. fp64 and int64 tensors are reduced in their own type.
//
// Not thread-safe: one thread of a rank (the one that computes) calls it.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The group's name in messages: "world", "data", "pipeline", ...
  virtual const std::string& name() const = 0;

  // Reduces `tensor` over the group, in place.
  virtual Work AllReduce(at::Tensor& tensor, ReduceOp op) = 0;
  // output[size() * n] = the inputs [n] of all ranks in rank order. `input` may be this rank's
  // slice of `output`.
  virtual Work AllGather(at::Tensor& output, const at::Tensor& input) = 0;
  // output[n] = this rank's slice of the reduction of inputs [size() * n]. `output` may be this
  // rank's slice of `input`.
  virtual Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  // Copies the tensor of rank `root` to all ranks, in place.
  virtual Work Broadcast(at::Tensor& tensor, int root) = 0;
  // Point-to-point; `peer` is another rank of this group, which calls the counterpart with a tensor
  // of the same size.
  virtual Work Send(const at::Tensor& tensor, int peer) = 0;
  virtual Work Recv(at::Tensor& tensor, int peer) = 0;
  // Sets what this rank computes from now on, such as "3B5, vision_tower.layers.0 to .3"; may be
  // empty. Other ranks include it in the error when this rank does not answer before the deadline.
  virtual void Announce(const std::string& compute);
  // Lets operations under way progress while this rank computes, until it waits again. Without this
  // call, a backend whose bytes move only while it is polled (MPI) polls every 20 ms: a second
  // thread on the core of a rank that waits anyway would cost more than it gains.
  virtual void ProgressInBackground();
  // Sets up connections for Send() and Recv() between these pairs of ranks, both ways. Collective,
  // with the same list on every rank. Needed once, before the first transfer of GPU tensors, while
  // none is under way (setting up a connection would wait for it); does nothing on the CPU.
  virtual void Connect(const std::vector<std::pair<int, int>>& pairs);
  // The sub-group of the ranks of equal `color`, ordered by `key` and then rank, as MPI_Comm_split.
  // Collective over this group.
  virtual std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) = 0;
};

// Blocks until every rank of the group has called it.
void Barrier(Communicator& group);

// Options of every backend.
struct CommOptions {
  // Deadline of an operation since its last progress; then it fails, naming the peer.
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
  // Called, by another thread, where this rank has not left so long after a failure: it is in no
  // wait that the failure could end (it reads a file, or waits for a GPU). `failure`: its text.
  std::chrono::milliseconds stuck_after{std::chrono::minutes(1)};
  void (*stuck)(int rank, const std::string& failure) = nullptr;
  // Sends end only when their receive has begun, so that an order of transfers that works thanks to
  // buffering deadlocks in tests. Ranks as threads always do so.
  bool synchronous_sends = false;
  // Longer messages are sent in pieces; MPI counts bytes in 31 bits.
  int64_t piece_bytes = int64_t{1} << 30;
};

}  // namespace equipoise
