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

// Outputs of a run: files of its folder besides checkpoints, and lines on the terminal.
class RunOutputs {
 public:
  // Writes the run's configuration, plan and model description, and cuts the files that steps are
  // added to back to `state`. Every rank makes one, once weights are there. Throws RunError.
  // `context`, `folder` and `data` must outlive it.
  RunOutputs(RunContext& context, const RunFolder& folder, const RunData& data,
             const TrainingPlan& planned, const TrainState& state);

  // A step after which the run stands at `state`: quarantine.jsonl by each rank, metrics,
  // TensorBoard and progress by rank 0, the trace where it is due. Collective where there is one.
  void Report(const TrainState& state, const StepResult& result, RunTrace& trace);
  // Throws DataError when more than data.max_bad_share of the records met, or of all, is bad.
  void RefuseTooManyBad(const TrainState& state) const;
  // RUN/answers_before.jsonl, which a resumed run reports too. By rank 0.
  void WriteAnswersBefore(const std::vector<AnsweredSource>& answers) const;
  // RUN/answers.jsonl and RUN/report.html. By rank 0.
  void WriteReport(const RunSummary& run, const std::vector<AnsweredSource>& answers);

 private:
  // Rank 0's alone.
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
  // Writes a file that only shows the run: where it cannot be written, that is logged once for each
  // `what`, and the run goes on.
  void WriteShown(const std::string& what, const std::function<void()>& write);

  RunContext& context_;
  const RunFolder& folder_;
  const RunData& data_;
  Quarantine quarantine_;
  std::unique_ptr<Shown> shown_;
  std::set<std::string> not_written_;
};

}  // namespace equipoise
