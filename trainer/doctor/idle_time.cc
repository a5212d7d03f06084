#include "trainer/doctor/idle_time.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "configs/base/error.h"
#include "trainer/doctor/step_walk.h"

// How imbalance is told apart. The busiest rank B sets the step's pace: a rank with b seconds of
// passes would wait B - b less if it had as much to do. The part up to the busiest rank of its own
// pipeline is due to stages, the rest to data ranks. Where predictions say what each rank has to
// do, a rank is slow if its seconds by predicted ones are kSlowAmongEquals times those of ranks
// with the same layers, or kSlow times the median rank's where none has them, since predictions of
// different layers err. Imbalance is then computed once more as if it kept pace; the difference is
// its fault.

namespace equipoise {
namespace {

constexpr double kSlowAmongEquals = 1.25, kSlow = 2;

// The lower one of the two middle values. REQUIRES: a value.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Imbalance {
  double stages_s = 0, data_s = 0;
};

std::vector<Imbalance> ImbalanceOf(const std::vector<double>& busy_s, const Mesh& mesh) {
  const double most = *std::max_element(busy_s.begin(), busy_s.end());
  std::vector<Imbalance> all;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    double here = 0;
    for (const int other : mesh.Group(rank, Axis::kPipeline))
      here = std::max(here, busy_s[static_cast<size_t>(other)]);
    all.push_back({here - busy_s[static_cast<size_t>(rank)], most - here});
  }
  return all;
}

// Seconds of each rank's passes if none were slow for its work; sets the table's slowest rank.
std::vector<double> AtOnePace(const std::vector<double>& busy_s, const std::vector<double>& work_s,
                              const Mesh& mesh, IdleTable& table) {
  std::vector<double> pace;
  for (size_t rank = 0; rank < busy_s.size(); ++rank)
    pace.push_back(work_s[rank] > 0 ? busy_s[rank] / work_s[rank] : 0);
  std::vector<double> even = busy_s;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const std::vector<int> equals = mesh.Group(rank, Axis::kData);
    std::vector<double> others;
    for (const int other : equals) {
      if (other != rank) others.push_back(pace[static_cast<size_t>(other)]);
    }
    const bool among_equals = !others.empty();
    if (!among_equals) {
      others = pace;
      others.erase(others.begin() + rank);
    }
    if (others.empty()) break;
    const double usual = Median(others), mine = pace[static_cast<size_t>(rank)];
    if (usual <= 0 || mine < (among_equals ? kSlowAmongEquals : kSlow) * usual) continue;
    even[static_cast<size_t>(rank)] = usual * work_s[static_cast<size_t>(rank)];
    if (mine / usual <= table.slowdown) continue;
    table.slowest = rank;
    table.slowdown = mine / usual;
  }
  return even;
}

// A data rank that has waited for data ends later, and the others wait for it at their end, where
// the walk sees it compute. Each is compared with the rank in its place of that data rank's
// pipeline, which cools down in any case.
void TellLateLoaders(const Mesh& mesh, int last_rank, IdleTable& table) {
  const auto late = static_cast<size_t>(mesh.Coordinate(last_rank, Axis::kData));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    RankIdle& mine = table.ranks[static_cast<size_t>(rank)];
    const int peer = mesh.Group(rank, Axis::kData)[late];
    const RankIdle& last = table.ranks[static_cast<size_t>(peer)];
    const double later_s = std::min(mine[IdleCause::kCoolDown] - last[IdleCause::kCoolDown],
                                    last[IdleCause::kDataWait] - mine[IdleCause::kDataWait]);
    if (later_s <= 0) continue;
    mine[IdleCause::kCoolDown] -= later_s;
    mine[IdleCause::kDataWait] += later_s;
  }
}

// Moves seconds of imbalance from the causes among which the walk has counted them.
void Move(RankIdle& rank, double stages_s, double data_s, double slow_s) {
  const double asked = stages_s + data_s + slow_s;
  double taken = 0;
  for (const IdleCause from :
       {IdleCause::kPipelineOther, IdleCause::kCoolDown, IdleCause::kWarmUp}) {
    const double part = std::min(rank[from], asked - taken);
    rank[from] -= part;
    taken += part;
  }
  if (asked <= 0) return;
  rank[IdleCause::kUnevenStages] += stages_s * taken / asked;
  rank[IdleCause::kUnevenData] += data_s * taken / asked;
  rank[IdleCause::kSlowRank] += slow_s * taken / asked;
}

void TellImbalance(const Mesh& mesh, const std::vector<double>& work_s, IdleTable& table) {
  std::vector<double> busy_s;
  for (const RankIdle& rank : table.ranks) busy_s.push_back(rank.compute_s);
  const std::vector<Imbalance> whole = ImbalanceOf(busy_s, mesh);
  std::vector<Imbalance> even = whole;
  if (work_s.size() == busy_s.size())
    even = ImbalanceOf(AtOnePace(busy_s, work_s, mesh, table), mesh);
  for (size_t rank = 0; rank < whole.size(); ++rank) {
    const double all_s = whole[rank].stages_s + whole[rank].data_s;
    const double stages_s = std::min(even[rank].stages_s, all_s);
    const double data_s = std::min(even[rank].data_s, all_s - stages_s);
    // Without a slow rank the three are those of `whole`.
    Move(table.ranks[rank], stages_s, data_s, all_s - stages_s - data_s);
  }
  if (table.Total(IdleCause::kSlowRank) == 0) table.slowest = -1;
}

}  // namespace

double RankIdle::idle() const { return std::accumulate(idle_s.begin(), idle_s.end(), 0.0); }

double IdleTable::Total(IdleCause cause) const {
  double sum = 0;
  for (const RankIdle& rank : ranks) sum += rank[cause];
  return sum / static_cast<double>(ranks.size());
}

std::vector<IdleCause> IdleTable::Largest(double share) const {
  std::vector<IdleCause> causes;
  for (const auto& each : NamesOf(IdleCause())) {
    if (Total(each.value) > share * step_s) causes.push_back(each.value);
  }
  std::stable_sort(causes.begin(), causes.end(),
                   [this](IdleCause a, IdleCause b) { return Total(a) > Total(b); });
  return causes;
}

std::vector<TracedStep> StepsOf(const Timeline& timeline) {
  std::map<std::string, size_t> numbers;  // by name
  std::vector<TracedStep> steps;
  for (const Span& span : timeline) {
    if (span.lane != kStepLane) continue;
    const auto [found, added] = numbers.insert({span.name, steps.size()});
    if (added) steps.push_back({span.start_s, span.end_s, {}});
    TracedStep& step = steps[found->second];
    step.start_s = std::min(step.start_s, span.start_s);
    step.end_s = std::max(step.end_s, span.end_s);
  }
  std::sort(steps.begin(), steps.end(),
            [](const TracedStep& a, const TracedStep& b) { return a.start_s < b.start_s; });
  if (steps.empty() && !timeline.empty()) {
    TracedStep whole{timeline.front().start_s, timeline.front().end_s, timeline};
    for (const Span& span : timeline) {
      whole.start_s = std::min(whole.start_s, span.start_s);
      whole.end_s = std::max(whole.end_s, span.end_s);
    }
    return {whole};
  }
  for (const Span& span : timeline) {
    if (span.lane == kStepLane) continue;
    // By its middle: clocks of ranks differ by microseconds.
    const double at = (span.start_s + span.end_s) / 2;
    for (TracedStep& step : steps) {
      if (at >= step.start_s && at < step.end_s) step.spans.push_back(span);
    }
  }
  return steps;
}

IdleTable AttributeIdle(const TracedStep& step, const Mesh& mesh,
                        const std::vector<double>& work_s) {
  IdleTable table;
  table.step_s = step.end_s - step.start_s;
  StepWalk walk(step, mesh);
  for (int rank = 0; rank < mesh.size(); ++rank) table.ranks.push_back(walk.Of(rank));
  TellLateLoaders(mesh, walk.last_rank(), table);
  TellImbalance(mesh, work_s, table);
  return table;
}

IdleTable MeanOf(const std::vector<IdleTable>& tables) {
  EQUIPOISE_CHECK(!tables.empty(), "no tables");
  IdleTable mean = tables.front();
  for (RankIdle& rank : mean.ranks) rank = {};
  mean.step_s = 0;
  const auto count = static_cast<double>(tables.size());
  mean.steps = static_cast<int>(tables.size());
  for (const IdleTable& table : tables) {
    mean.step_s += table.step_s / count;
    for (size_t rank = 0; rank < mean.ranks.size(); ++rank) {
      mean.ranks[rank].compute_s += table.ranks[rank].compute_s / count;
      mean.ranks[rank].update_s += table.ranks[rank].update_s / count;
      for (size_t cause = 0; cause < kIdleCauses; ++cause)
        mean.ranks[rank].idle_s[cause] += table.ranks[rank].idle_s[cause] / count;
    }
    if (table.slowest >= 0 && (mean.slowest < 0 || table.slowdown > mean.slowdown)) {
      mean.slowest = table.slowest;
      mean.slowdown = table.slowdown;
    }
  }
  return mean;
}

}  // namespace equipoise
