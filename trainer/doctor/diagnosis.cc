#include "trainer/doctor/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "configs/base/error.h"
#include "trainer/doctor/remedies.h"
#include "trainer/doctor/simulated_idle.h"
#include "trainer/planner/plan_report.h"

namespace equipoise {
namespace {

constexpr double kShown = 0.001;  // of a step

// The trace's mesh. Without one, ranks that have the same stages are data ranks.
Mesh MeshOfTrace(const TraceFile& trace, const Timeline& timeline, const std::string& name) {
  std::set<int> ranks;
  for (const Span& span : timeline) ranks.insert(span.rank);
  const auto count = static_cast<int>(ranks.size());
  if (count == 0) throw DataError(name + ": has no spans; record one with run.trace_steps");
  const Mesh mesh = trace.mesh ? *trace.mesh : Mesh({{Axis::kPipeline, count}});
  if (mesh.size() != count || *ranks.rbegin() != count - 1) {
    throw DataError(fmt::format("{}: has spans of {} ranks, its mesh has {}; the trace is damaged",
                                name, count, mesh.size()));
  }
  return mesh;
}

// Predicted seconds of each rank's passes, as `work_s` of AttributeIdle(); empty where unknown.
std::vector<double> WorkOf(const Timeline& predicted, int ranks) {
  std::vector<double> work_s(static_cast<size_t>(ranks), 0);
  for (const Span& span : predicted) {
    if (span.rank >= ranks) return {};
    if (span.lane == kComputeLane && span.name != "OPT")
      work_s[static_cast<size_t>(span.rank)] += span.end_s - span.start_s;
  }
  const bool known = std::all_of(work_s.begin(), work_s.end(), [](double s) { return s > 0; });
  return known ? work_s : std::vector<double>();
}

// As metrics.jsonl has it: of each step the longest time that a rank waits for its own loader.
double LoaderWaitSeconds(const std::vector<TracedStep>& steps) {
  double sum_s = 0;
  for (const TracedStep& step : steps) {
    std::map<int, double> wait_s;  // by rank
    double most_s = 0;
    for (const Span& span : step.spans) {
      if (span.lane != kDataLane) continue;
      most_s = std::max(most_s, wait_s[span.rank] += span.end_s - span.start_s);
    }
    sum_s += most_s;
  }
  return sum_s / static_cast<double>(steps.size());
}

// Returns the LoaderWaitSeconds() of the steps that were traced.
double ReadTrace(const Subject& subject, Diagnosis& diagnosis) {
  const TraceFile& trace = *subject.trace;
  const bool measured = !trace.measured.empty();
  const Timeline& timeline = measured ? trace.measured : trace.predicted;
  const Mesh mesh = MeshOfTrace(trace, timeline, subject.name);
  std::vector<TracedStep> steps = StepsOf(timeline);
  // Caches, threads and connections are cold in a run's first step.
  if (steps.size() > 1) steps.erase(steps.begin());
  const std::vector<double> work_s =
      measured ? WorkOf(trace.predicted, mesh.size()) : std::vector<double>();
  std::vector<IdleTable> tables;
  for (const TracedStep& step : steps) tables.push_back(AttributeIdle(step, mesh, work_s));
  diagnosis.table = MeanOf(tables);
  diagnosis.basis = fmt::format("{} step{} {}", tables.size(), tables.size() == 1 ? "" : "s",
                                measured ? "measured, from the trace" : "simulated");
  return LoaderWaitSeconds(steps);
}

// The mean of a column over all steps but the first; 0 where no step has it.
double Mean(const std::vector<StepMetrics>& steps, std::optional<double> StepMetrics::*column) {
  double sum = 0, count = 0;
  for (size_t i = 1; i < steps.size(); ++i) {
    if (!(steps[i].*column)) continue;
    sum += *(steps[i].*column);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

// Of a step in the mean: few end a round.
double OuterSecondsOf(const std::vector<StepMetrics>& steps) {
  double sum = 0;
  for (const StepMetrics& step : steps) sum += step.outer_s.value_or(0);
  return sum / static_cast<double>(steps.size());
}

// Adds what a trace of the first steps cannot show: pauses between steps, and loaders that have
// fallen behind later, by more than the `traced_s` of LoaderWaitSeconds().
void AddWholeRun(const std::vector<StepMetrics>& steps, double traced_s, Diagnosis& diagnosis) {
  if (steps.size() < 2) return;
  IdleTable& table = diagnosis.table;
  const double saving_s = Mean(steps, &StepMetrics::checkpoint_s);
  const double outer_s = OuterSecondsOf(steps);
  const double pause_s = std::max(saving_s + outer_s, Mean(steps, &StepMetrics::pause_s));
  const double wait_s = Mean(steps, &StepMetrics::data_wait_s);
  const double later_s = std::max(0.0, wait_s - traced_s);
  table.step_s += pause_s + later_s;
  for (RankIdle& rank : table.ranks) {
    rank[IdleCause::kCheckpoint] += saving_s;
    rank[IdleCause::kOuterStep] += outer_s;
    rank[IdleCause::kHost] += pause_s - saving_s - outer_s;
    rank[IdleCause::kDataWait] += later_s;
  }
  diagnosis.basis +=
      fmt::format("; data waits and pauses of {} steps, from metrics.jsonl", steps.size() - 1);
}

void AddRemedies(const Subject& subject, Diagnosis& diagnosis) {
  if (subject.run || (subject.trace && !subject.trace->measured.empty()))
    diagnosis.remedies = RemediesOfMeasured(subject, diagnosis.table);
  if (!subject.planned) {
    diagnosis.notes.push_back(
        "remedies are simulated for a run folder or the JSON of `plan --json`, which have a "
        "configuration");
    return;
  }
  try {
    const RemedySearch search(*subject.planned);
    for (Remedy& remedy : search.Search()) diagnosis.remedies.push_back(std::move(remedy));
  } catch (const UserError& error) {
    diagnosis.notes.push_back(fmt::format("no remedy was simulated: {}", error.what()));
  }
  std::stable_sort(diagnosis.remedies.begin(), diagnosis.remedies.end(),
                   [](const Remedy& a, const Remedy& b) { return a.gain > b.gain; });
}

}  // namespace

std::string Explain(IdleCause cause, const IdleTable& table) {
  switch (cause) {
    case IdleCause::kDataWait:
      return "a loader is behind: pictures are decoded slower than steps are computed";
    case IdleCause::kWarmUp:
      return "the first micro-batch has to come through the stages before";
    case IdleCause::kCoolDown:
      return "the last backwards have to come through the stages behind";
    case IdleCause::kPipelineOther:
      return "between passes: what a pass needs is not there yet";
    case IdleCause::kUnevenStages:
      return "stages take unequal time; all wait for the longest";
    case IdleCause::kUnevenData:
      return "a data rank has more to compute than the others, which wait for it";
    case IdleCause::kSlowRank:
      return fmt::format("rank {} takes {:.1f} times as long for its work as others do",
                         table.slowest, table.slowdown);
    case IdleCause::kReduceScatter:
      return "gradients are summed over the data ranks, and no backward hides it";
    case IdleCause::kAllGather:
      return "weights are gathered from the data ranks, and no pass hides it";
    case IdleCause::kTensor:
      return "tensor ranks sum inside of layers";
    case IdleCause::kContext:
      return "context ranks exchange the heads of attention inside of layers";
    case IdleCause::kOuterStep:
      return "islands sum what their weights have moved by (train.diloco)";
    case IdleCause::kCheckpoint:
      return "saving checkpoints";
    case IdleCause::kHost:
      return "agreement of ranks, evaluation, logs, gaps between ops";
  }
  return "";
}

Diagnosis Diagnose(const std::string& path) {
  const Subject subject = ReadSubject(path);
  Diagnosis diagnosis;
  diagnosis.subject = path;
  if (subject.planned) diagnosis.plan = DescribeMesh(subject.planned->plan);
  double traced_s = 0;
  if (subject.trace) {
    traced_s = ReadTrace(subject, diagnosis);
  } else {
    const RemedySearch search(*subject.planned);
    diagnosis.table = SimulatedIdle(search.request(), search.plan());
    diagnosis.basis = "one step simulated, on the data rank with the most work";
    if (subject.run)
      diagnosis.notes.push_back(
          "no trace.json: run.trace_steps is 0, so nothing "
          "of the ranks was measured");
  }
  if (subject.run) AddWholeRun(subject.metrics, traced_s, diagnosis);
  diagnosis.causes = diagnosis.table.Largest(kShown);
  AddRemedies(subject, diagnosis);
  return diagnosis;
}

}  // namespace equipoise
