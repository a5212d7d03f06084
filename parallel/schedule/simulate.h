#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/timeline.h"

namespace equipoise {

// Time of n bytes between two ranks: latency_s + n / bytes_per_s.
struct LinkModel {
  double latency_s = 0;
  double bytes_per_s = 0;  // 0: no limit
};

struct SimulationCosts {
  // Seconds of a compute op, REDUCE or OPT. Default: F and V 1, I and W 1, B and U 2, others 0.
  std::function<double(const Op&)> seconds;
  // Bytes that an S moves. Default: 0.
  std::function<double(const Op&)> bytes;
  // Between two ranks. Default: no time at all.
  std::function<LinkModel(int from_rank, int to_rank)> link;
  // Bytes that a stage keeps of a micro-batch from F to the op that frees it (B, W or U).
  // Default: 1. Nothing is kept of a forward that no backward follows.
  std::function<double(int stage, int micro_batch)> kept_bytes;
  // Bytes that it keeps in place of those from I to W. Default: the same.
  std::function<double(int stage, int micro_batch)> deferred_bytes;
};

struct Simulation {
  // Lanes "compute" (OPT too) and "communication" (S, R, REDUCE), named by the ops' text, rank by
  // rank in the order of the lists; transfers that the schedule does not list come last.
  Timeline timeline;
  std::vector<std::vector<double>> start_s, end_s;  // [rank][position]
  double step_s = 0;                                // end of the last op
  // By rank: seconds of compute and OPT, and what is not of [0, step_s] as a share.
  std::vector<double> busy_s, bubble_share;
  std::vector<double> peak_kept_bytes;  // by rank
};

// Runs a schedule in simulated time. Ops of a rank run in order; an op starts when the ops that it
// takes values from have ended (dependencies.h). Transfers are asynchronous: the rank goes on at
// once, a transfer starts when its rank has come to the S (the value is there then), transfers of
// one ordered pair of ranks follow each other on their link, and the op that takes the value waits
// for its arrival; S and R both span the time on the link. Reductions are asynchronous too and
// follow each other; OPT waits for them. A schedule without transfers is simulated as if each value
// were sent as soon as it is there.
// Throws ConfigError when it deadlocks.
Simulation Simulate(const Schedule& schedule, const SimulationCosts& costs);
// The same without the timeline, for a search that simulates many schedules.
Simulation SimulateTimes(const Schedule& schedule, const SimulationCosts& costs);

// The transfers' S and R as rendezvous: both ranks stay in theirs until the other has come and the
// transfer (`link`) is over; joined ones form one rendezvous. Returns the ops that can not run
// (one a rank that is stuck), empty when the schedule runs to its end.
std::vector<OpPlace> StuckWithBlockingTransfers(const Schedule& schedule);

}  // namespace equipoise
