#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/device/gpu_stand_in.h"

namespace equipoise::testing {

// Something that the host of a rank asks of its GPU, or learns from it.
struct TraceStep {
  enum class What {
    kUse,         // work on `stream` that uses memory
    kTake,        // a block of memory for `stream`: from those that it freed, or a new one
    kFree,        // a block of memory that `stream` may write from now on
    kRecord,      // `stream` records the event
    kStreamWait,  // `stream` waits for the event
    kHostWait,    // the thread that computes waits for the events
    kSeen,        // a thread has seen that the event is done
    kHostSync,    // the thread that computes waits for all of `stream`
  };
  What what;
  int stream = 0;  // 0: the default one
  std::vector<int64_t> events = {};
  std::vector<MemoryUse> uses = {};
  std::string name = {};   // "aten::add_", "send to 1 in group pipeline"
  std::string doing = {};  // what the rank computes meanwhile; may be empty
  bool computes = true;    // by the thread that computes, or that of communication
};
using Trace = std::vector<TraceStep>;

// The place of a wait in the program: "stream waits before send to 1 in group pipeline". Empty for
// other steps, and for a wait that nobody could leave out (the host reads a number).
std::string SiteOf(const TraceStep& step);

// What may use memory at a time although one of the two writes: no order of streams, events and
// waits lies between. Both places are named. Steps for which `dropped` holds order nothing.
//
// Streams and threads have vector clocks. Work begins after the work before it in its stream, after
// the events that its stream has been told to wait for, and after all that the host knew to be done
// when it asked for it. Freeing memory is a write of the stream that took it, as LibTorch's
// allocator gives a block away again in the order of that stream, to it alone; who frees it has
// seen the end of the events that any thread of the rank has seen.
std::vector<std::string> Conflicts(
    const Trace& trace,
    const std::function<bool(size_t step)>& dropped = [](size_t) { return false; });

}  // namespace equipoise::testing
