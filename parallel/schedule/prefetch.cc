// The step without the passes for the next one is simulated once; what its ranks do not use of that
// time, and all time after it, is free. Micro-batches are taken in ascending order, as a stage's
// passes have to come, and each goes to the copy of the encoder that finishes it first: where
// bubbles are left, one that has some; else the one whose rank is free earliest, so that what
// lengthens the step is spread. No pass waits for one of the step, nor does any of the step wait
// for one of these: but for its place in a rank's list, each is free. With m copies of n stages and
// M micro-batches it costs O(M m n) searches for a bubble.

#include "parallel/schedule/prefetch.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "configs/base/error.h"
#include "parallel/schedule/free_time.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/timetable.h"

namespace equipoise {
namespace {

void RequireFrozen(const EncoderPipelines& encoder) {
  for (int place = 0; place < encoder.depth(); ++place) {
    EQUIPOISE_CHECK(!encoder.HasBackward(place), "features of an encoder that is trained");
  }
}

// The step's compute ops, with micro-batches of the next step for which nothing runs yet.
Schedule WithNext(const Schedule& step, size_t next) {
  Schedule schedule = step;
  for (std::vector<Op>& list : schedule.ranks) {
    std::erase_if(list, [](const Op& op) { return !IsCompute(op.kind); });
  }
  schedule = DropIdleOps(std::move(schedule), step.work);
  schedule.micro_batches += static_cast<int>(next);
  for (auto* table : {&schedule.work.runs, &schedule.work.sends}) {
    for (std::vector<bool>& row : *table) row.resize(row.size() + next, false);
  }
  return schedule;
}

class Prefetcher {
 public:
  Prefetcher(Schedule step, const EncoderPipelines& encoder, const SimulationCosts& costs)
      : schedule_(std::move(step)),
        encoder_(encoder),
        costs_(costs),
        pipelines_(encoder.count(schedule_.graph.num_ranks())),
        times_(SimulateTimes(schedule_, costs)),
        last_s_(schedule_.graph.stages.size(), 0),
        added_(schedule_.ranks.size()) {
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      for (int lane = 0; lane < encoder.lanes; ++lane) free_.push_back(FreeBeside(r, lane));
      for (size_t p = 0; p < schedule_.ranks[r].size(); ++p) {
        double& last = last_s_[static_cast<size_t>(schedule_.ranks[r][p].stage)];
        last = std::max(last, times_.end_s[r][p]);
      }
    }
  }

  // Finds room for a micro-batch's passes, on the copy that is done first.
  void Add(int micro_batch) {
    std::vector<Pass> best;
    double best_s = std::numeric_limits<double>::infinity();
    for (int pipeline = 0; pipeline < pipelines_; ++pipeline) {
      std::vector<Pass> passes = Walk(pipeline, micro_batch);
      if (passes.back().end_s() >= best_s) continue;
      best_s = passes.back().end_s();
      best = std::move(passes);
    }
    for (const Pass& pass : best) Commit(pass);
  }

  Schedule Merged() && {
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      std::vector<Pass>& passes = added_[r];
      std::stable_sort(passes.begin(), passes.end(),
                       [](const Pass& a, const Pass& b) { return a.start_s < b.start_s; });
      std::vector<Op> list;
      size_t next = 0;
      for (const size_t p : ByStart(r)) {
        // At equal times the step's own comes first: it may be one that takes no time.
        for (; next < passes.size() && passes[next].start_s < times_.start_s[r][p]; ++next)
          list.push_back(passes[next].op);
        list.push_back(schedule_.ranks[r][p]);
      }
      for (; next < passes.size(); ++next) list.push_back(passes[next].op);
      schedule_.ranks[r] = std::move(list);
    }
    return std::move(schedule_);
  }

 private:
  struct Pass {
    Op op;
    double start_s = 0, seconds = 0;
    double end_s() const { return start_s + seconds; }
  };

  // The places of a rank's ops as they begin: in its list one of a lane may stand behind a later
  // one of another lane.
  std::vector<size_t> ByStart(size_t rank) const {
    std::vector<size_t> places(schedule_.ranks[rank].size());
    std::iota(places.begin(), places.end(), 0);
    const std::vector<double>& start_s = times_.start_s[rank];
    std::stable_sort(places.begin(), places.end(),
                     [&](size_t a, size_t b) { return start_s[a] < start_s[b]; });
    return places;
  }

  // What the tensor ranks of a lane do not use of a rank's time.
  FreeTime FreeBeside(size_t rank, int lane) const {
    std::vector<double> starts, ends;
    for (size_t p = 0; p < schedule_.ranks[rank].size(); ++p) {
      if (!RunsInLane(schedule_.graph, schedule_.ranks[rank][p], lane)) continue;
      starts.push_back(times_.start_s[rank][p]);
      ends.push_back(times_.end_s[rank][p]);
    }
    return {starts, ends, /*lead=*/0, /*ends_alone=*/false};
  }
  size_t LaneAt(const StageNode& node) const {
    return static_cast<size_t>(node.rank * encoder_.lanes + std::max(node.lane, 0));
  }

  std::vector<Pass> Walk(int pipeline, int micro_batch) const {
    std::vector<Pass> passes;
    double ready = 0;
    for (int place = 0; place < encoder_.depth(); ++place) {
      const Op op{OpKind::kEncoderForward, encoder_.StageOf(pipeline, place), micro_batch};
      const StageNode& node = schedule_.graph.stages[static_cast<size_t>(op.stage)];
      const double earliest = std::max(ready, last_s_[static_cast<size_t>(op.stage)]);
      const double seconds = SecondsOfOp(costs_, op);
      const double slack_s = 1e-9 * times_.step_s;  // of rounding
      const double start = free_[LaneAt(node)].Find(earliest, seconds, slack_s);
      passes.push_back({op, start, seconds});
      ready = passes.back().end_s();
      if (place + 1 == encoder_.depth()) continue;
      const Op send{OpKind::kSend, op.stage, micro_batch, node.next.front()};
      ready += TransferSeconds(schedule_, costs_, send);
    }
    return passes;
  }

  void Commit(const Pass& pass) {
    const auto stage = static_cast<size_t>(pass.op.stage);
    const auto rank = static_cast<size_t>(schedule_.graph.stages[stage].rank);
    free_[LaneAt(schedule_.graph.stages[stage])].Take(pass.start_s, pass.seconds);
    last_s_[stage] = pass.end_s();
    added_[rank].push_back(pass);
    const auto micro_batch = static_cast<size_t>(pass.op.micro_batch);
    schedule_.work.runs[stage][micro_batch] = true;
    // What the last stage makes stays there.
    const int next = schedule_.graph.stages[stage].next.front();
    const bool passes_on = schedule_.graph.stages[static_cast<size_t>(next)].encoder;
    schedule_.work.sends[stage][micro_batch] = passes_on;
  }

  Schedule schedule_;
  const EncoderPipelines& encoder_;
  const SimulationCosts& costs_;
  const int pipelines_;
  const Simulation times_;                // of the step alone
  std::vector<FreeTime> free_;            // [rank][lane]
  std::vector<double> last_s_;            // [stage] end of its last pass
  std::vector<std::vector<Pass>> added_;  // [rank]
};

}  // namespace

Schedule TakeFeatures(const Schedule& llm, const EncoderPipelines& encoder,
                      const std::vector<int>& owners) {
  RequireFrozen(encoder);
  Schedule schedule = AddEncoderStages(llm, encoder);
  EQUIPOISE_CHECK(static_cast<int>(owners.size()) == schedule.micro_batches, "features of ",
                  owners.size(), " micro-batches");
  SetOwners(schedule, encoder, owners);
  const int last = encoder.depth() - 1;
  for (int pipeline = 0; pipeline < encoder.count(schedule.graph.num_ranks()); ++pipeline) {
    for (int place = 0; place < last; ++place) {
      const auto stage = static_cast<size_t>(encoder.StageOf(pipeline, place));
      for (auto* table : {&schedule.work.runs, &schedule.work.sends})
        (*table)[stage].assign(owners.size(), false);
    }
  }
  std::vector<std::vector<Op>> taken(schedule.ranks.size());
  for (int i = 0; i < schedule.micro_batches; ++i) {
    const int owner = owners[static_cast<size_t>(i)];
    if (owner < 0) continue;
    const int stage = encoder.StageOf(owner, last);
    const int rank = schedule.graph.stages[static_cast<size_t>(stage)].rank;
    taken[static_cast<size_t>(rank)].push_back({OpKind::kEncoderForward, stage, i});
  }
  for (size_t r = 0; r < taken.size(); ++r) {
    schedule.ranks[r].insert(schedule.ranks[r].begin(), taken[r].begin(), taken[r].end());
  }
  return schedule;
}

Schedule PrefetchNext(const Schedule& step, const EncoderPipelines& encoder,
                      const std::vector<bool>& runs, const SimulationCosts& costs) {
  RequireFrozen(encoder);
  Prefetcher prefetcher(WithNext(step, runs.size()), encoder, costs);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i]) prefetcher.Add(step.micro_batches + static_cast<int>(i));
  }
  Schedule schedule = std::move(prefetcher).Merged();
  const StepWork work = schedule.work;
  return CompleteSchedule(std::move(schedule), work, costs);
}

std::vector<int> NextOwners(const Schedule& schedule, const EncoderPipelines& encoder,
                            int micro_batches) {
  std::vector<int> owners(static_cast<size_t>(schedule.micro_batches - micro_batches), -1);
  for (const std::vector<Op>& list : schedule.ranks) {
    for (const Op& op : list) {
      if (op.kind != OpKind::kEncoderForward || op.micro_batch < micro_batches) continue;
      owners[static_cast<size_t>(op.micro_batch - micro_batches)] = op.stage / encoder.depth();
    }
  }
  return owners;
}

SimulationCosts WithTaken(const SimulationCosts& costs, int taken) {
  if (taken == 0) return costs;
  SimulationCosts with = costs;
  with.seconds = [costs, taken](const Op& op) {
    const bool takes = op.kind == OpKind::kEncoderForward && op.micro_batch < taken;
    return takes ? 0 : SecondsOfOp(costs, op);
  };
  return with;
}

}  // namespace equipoise
