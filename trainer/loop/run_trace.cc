#include "trainer/loop/run_trace.h"

#include <string>
#include <utility>

#include "configs/base/json.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/gather_text.h"
#include "parallel/schedule/schedule_text.h"
#include "parallel/trace_file.h"

namespace equipoise {

void RunTrace::Start(int64_t step) {
  Barrier(context_.world());
  context_.recorder = TimelineRecorder(context_.rank());
  if (context_.config.run.trace_steps == 0) return;
  until_ = step + context_.config.run.trace_steps;
  context_.recorder.Start();
}

void RunTrace::AddPredicted(const Replica& replica, const StepResult& step) {
  if (!context_.recorder.enabled()) return;
  mesh_ = replica.whole_mesh();
  const ParallelModel& model = replica.model();
  const Timeline simulated =
      replica.forecast().Simulated(model.schedule(), step.loads, step.taken).timeline;
  for (Span span : StartingAt(simulated, model.started_s())) {
    if (span.rank != replica.pipeline_rank()) continue;
    if (!RunsInLane(model.schedule().graph, ParseOp(span.name), model.lane())) continue;
    span.lane = LaneOfAllRanks(span);
    span.rank = context_.rank();
    predicted_.push_back(std::move(span));
  }
}

std::string RunTrace::TakeIfDue(int64_t step, bool last) {
  if (until_ == 0 || (!last && step < until_)) return "";
  until_ = 0;
  context_.recorder.Stop();
  Json merged = {{"traceEvents", Json::array()}, {"mesh", MeshJson(mesh_)}};
  for (const std::string& text :
       GatherText(context_.world(), ToChromeTrace(context_.recorder.timeline(), predicted_))) {
    const Json part = Json::parse(text);
    for (const Json& event : part["traceEvents"]) merged["traceEvents"].push_back(event);
  }
  return context_.rank() == 0 ? merged.dump() + "\n" : "";
}

}  // namespace equipoise
