#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "data/records/quarantine.h"
#include "trainer/answers/answer_eval.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/run_trace.h"
#include "trainer/loop/step_result.h"
#include "trainer/outputs/metrics.h"
#include "trainer/outputs/progress.h"
#include "trainer/outputs/report_facts.h"
#include "trainer/outputs/run_folder.h"
#include "trainer/outputs/tensorboard.h"
#include "trainer/planner/plan_run.h"

namespace equipoise {

// Outputs of a run: the files of its folder except checkpoints, and lines on the terminal.
class RunOutputs {
 public:
  // Writes the run's configuration, plan and model description, and truncates the files to which
  // steps are appended to `state`. Every rank makes one, after weights are set. Throws RunError.
  // `context`, `folder` and `data` must outlive the object.
  RunOutputs(RunContext& context, const RunFolder& folder, const RunData& data,
             const TrainingPlan& planned, const TrainState& state);

  // Reports a step, after which the run is at `state`: quarantine.jsonl on each rank; metrics,
  // TensorBoard and progress on rank 0; the trace where it is due. Collective where one is due.
  void Report(const TrainState& state, const StepResult& result, RunTrace& trace);
  // Adds the answers given after the step that the run goes on from to what was reported of it.
  void ReportAnswers(const TrainState& state, const StepResult& result);
  // Throws DataError when more than data.max_bad_share of the records read, or of all, is bad.
  void RefuseTooManyBad(const TrainState& state) const;
  // Writes RUN/answers_before.jsonl, which a resumed run reports too. For rank 0.
  void WriteAnswersBefore(const std::vector<AnsweredSource>& answers) const;
  // Writes RUN/answers.jsonl and RUN/report.html. For rank 0.
  void WriteReport(const RunSummary& run, const std::vector<AnsweredSource>& answers);

 private:
  // Writers of the outputs that only rank 0 has.
  struct Shown {
    Shown(const RunFolder& folder, const ProgressOptions& progress);
    MetricsWriter metrics;
    std::unique_ptr<TensorBoardWriter> tensorboard;  // none where it cannot be written
    Progress progress;
  };

  void WriteDescription(const TrainingPlan& planned) const;
  void OpenShown(const Plan& plan, const TrainState& state);
  void NoteBadSamples(const std::vector<BadSample>& samples, int64_t step);
  StepMetrics MetricsOf(const TrainState& state, const StepResult& result) const;
  void AddScalars(const StepMetrics& metrics);
  // Runs `write`, of an output without which the run can continue: a failure is logged, once for
  // each `what`.
  void WriteShown(const std::string& what, const std::function<void()>& write);

  RunContext& context_;
  const RunFolder& folder_;
  const RunData& data_;
  Quarantine quarantine_;
  std::unique_ptr<Shown> shown_;
  std::set<std::string> not_written_;
};

}  // namespace equipoise
