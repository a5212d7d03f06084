#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace equipoise::stand_in {

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kReceive };

struct Stream;
struct Group;

// A call on its way. `count` is what the caller gave.
struct Op {
  Kind kind;
  const void* in;
  void* out;
  size_t count;
  int type;
  int argument;  // of a reduction: the operation; of a broadcast: the root; else the peer
  Group* group = nullptr;
  int member = 0;
  size_t index = 0;  // among the calls that it is matched with
  Stream* stream = nullptr;
  int64_t unit = 0;
  bool finished = false;
  bool collective() const { return kind < Kind::kSend; }
};

struct Event {
  bool done = true;
};

// What a stream does next: the calls of one group, or an event.
struct Item {
  enum class What { kCalls, kRecord, kWait } what;
  int64_t unit = 0;
  std::vector<std::shared_ptr<Op>> calls;
  std::shared_ptr<Event> event;
  bool given = false;  // to the GPU, by the hardware's queue
};

struct Stream {
  int rank;
  std::deque<Item> items;
};

// A queue of the hardware, by which streams give their work to the GPU in the order of the host. A
// record or a wait stays at its head until its stream has come so far.
class Queue {
 public:
  void Push(Stream* stream) { streams_.push_back(stream); }
  // Gives on what it can; whether that was anything.
  bool Give();

 private:
  std::deque<Stream*> streams_;  // of items that were not given
};

struct Group {
  int number;
  std::vector<int> ranks;  // by member; -1 until it has come
  int joined = 0, closed = 0;
  std::vector<bool> aborted;
  std::vector<std::vector<std::shared_ptr<Op>>> collectives;  // by member
  struct Lane {
    std::vector<std::shared_ptr<Op>> sends, receives;
  };
  std::map<std::pair<int, int>, Lane> lanes;  // by sender and receiver
};

struct Comm {
  Group* group;
  int member;
  bool open = true;
};

// Ends what the rank has called.
void Abort(const Comm& comm);

// The order in which ranks destroy communicators that none aborts; NCCL's destruction may wait for
// the other ranks.
class DestroyOrder {
 public:
  // What is wrong with that; empty: nothing.
  std::string Add(int rank, const Group& group);

 private:
  std::map<std::pair<int, int>, std::vector<const Group*>> common_;  // by rank and another one
};

// The host's memory that GPUs copy from and to; any other is refused. Any thread.
class PinnedMemory {
 public:
  int Pin(void** data, size_t bytes);
  int Unpin(void* data);
  int Copy(void* to, const void* from, size_t bytes, int kind);
  int buffers() const;
  size_t most_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<const void*, size_t> pinned_;  // bytes
  size_t bytes_ = 0, most_bytes_ = 0;
};

// "rank 1: send to rank 0 #1 (4 elements of type 7) on communicator 2"
std::string Describe(const Op& op);
size_t Bytes(const Op& op);
// The calls that `op` needs beside itself, as far as they were made; `missing`: ranks that have not
// made theirs.
std::vector<std::shared_ptr<Op>> Partners(const Op& op, std::set<int>* missing = nullptr);
// Whether its stream has come to it.
bool Live(const Op& op);
// Does what the members' calls of one collective ask for. Sums go round the ring.
void Execute(const std::vector<std::shared_ptr<Op>>& ops);

}  // namespace equipoise::stand_in
