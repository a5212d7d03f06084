#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/timeline.h"

namespace equipoise {

// A link between two ranks (alpha-beta model): n bytes take latency_s + n / bytes_per_s.
struct LinkModel {
  double latency_s = 0;
  double bytes_per_s = 0;  // 0: no limit
};

// Costs of a schedule's ops. A function that is not set means its default.
struct SimulationCosts {
  // Seconds of a compute op, REDUCE, OPT or GATHER. Default: F and V 1, I and W 1, B and U 2,
  // others 0.
  std::function<double(const Op&)> seconds;
  // Bytes that an S sends. Default: 0.
  std::function<double(const Op&)> bytes;
  // Whether a rank goes on only when what it sends has arrived.
  bool blocking_sends = false;
  // The link between two ranks. Default: transfers take no time.
  std::function<LinkModel(int from_rank, int to_rank)> link;
  // Bytes that a stage keeps of a micro-batch from F to the op that frees it (B, W or U).
  // Default: 1. Nothing is kept of a forward that no backward follows.
  std::function<double(int stage, int micro_batch)> kept_bytes;
  // Bytes that it keeps from I to W in place of those. Default: the same.
  std::function<double(int stage, int micro_batch)> deferred_bytes;
};

// Seconds of a compute op, REDUCE, OPT or GATHER, with the default of SimulationCosts::seconds.
double SecondsOfOp(const SimulationCosts& costs, const Op& op);

// A schedule run in simulated time. Times in seconds from the start of the step.
struct Simulation {
  // Lanes "compute" (OPT too) and "communication" (S, R, REDUCE), named by the ops' text, rank by
  // rank in the order of the lists; transfers that the schedule does not list come last. Where an
  // encoder has lanes (StageNode::lane), these two are of the tensor ranks of lane 0; ops of lane 1
  // are in "compute, lane 1" and "communication, lane 1".
  Timeline timeline;
  std::vector<std::vector<double>> start_s, end_s;  // [rank][position]
  double step_s = 0;                                // end of the last op
  // By rank: seconds of compute and OPT, the mean of its lanes, and the idle share of [0, step_s].
  std::vector<double> busy_s, bubble_share;
  std::vector<double> peak_kept_bytes;  // by rank; the most of its lanes
};

// Runs a schedule in simulated time. Ops of a rank run in order; an op starts when its producers
// have ended (dependencies.h). Transfers are asynchronous: the rank goes on at once, the transfer
// starts when its rank reaches the S, transfers of one ordered pair of ranks are serialized on
// their link, and the consumer waits for the arrival; S and R both span the time on the link.
// Reductions and gathers are asynchronous too and serialized by rank; OPT waits for the former, the
// pass that a GATHER serves for that. FREE takes no time. The lanes of a rank run their ops beside
// each other; an op of no lane waits for all of them. A schedule without transfers is simulated as
// if each value were sent as soon as it is produced. Throws ConfigError when the schedule
// deadlocks.
Simulation Simulate(const Schedule& schedule, const SimulationCosts& costs);
// Simulate() without timeline and peaks, for a search that simulates many schedules.
Simulation SimulateTimes(const Schedule& schedule, const SimulationCosts& costs);

// Runs a schedule whose transfers are rendezvous: a rank blocks in S or R until its peer has
// reached the other end; joined transfers block as one. Returns the ops that cannot run, one for
// each rank that is stuck; empty when the schedule runs to its end.
std::vector<OpPlace> StuckWithBlockingTransfers(const Schedule& schedule);

}  // namespace equipoise
