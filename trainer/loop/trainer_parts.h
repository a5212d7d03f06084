#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "balance/load/sample_groups.h"
#include "data/records/quarantine.h"
#include "parallel/comm/communicator.h"
#include "parallel/timeline.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/answers/answer_eval.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/common/stop_request.h"
#include "trainer/loop/non_finite_guard.h"
#include "trainer/loop/step_drift.h"
#include "trainer/loop/step_feed.h"
#include "trainer/loop/step_forecast.h"
#include "trainer/loop/straggler.h"
#include "trainer/loop/trainer.h"
#include "trainer/outputs/activity.h"
#include "trainer/outputs/metrics.h"
#include "trainer/outputs/progress.h"
#include "trainer/outputs/report_facts.h"
#include "trainer/outputs/run_folder.h"
#include "trainer/outputs/tensorboard.h"
#include "trainer/planner/make_plan.h"
#include "trainer/planner/plan_yaml.h"
#include "trainer/run/open_data.h"
#include "trainer/run/parallel_model.h"
#include "trainer/run/set_up_run.h"

namespace equipoise {

// What one step adds up over micro-batches, and then over ranks.
struct StepSums {
  double loss = 0;    // already divided by the planned weight of the step's targets
  double weight = 0;  // of the targets that were there
  double bad_samples = 0;
  double data_wait_s = 0;  // over ranks: the longest
  double stop_requests = 0;
  double busy_s = 0;       // seconds of compute in the passes; over ranks: the mean
  double span_s = 0;       // of the passes from begin to end; over ranks: the longest
  double predicted_s = 0;  // over ranks: the longest
  RankTimes times;         // of this rank alone; step_s is not known yet
};

// The parts of a training run, in the order in which they are built. The loop is in trainer.cc.
struct TrainerParts {
  TrainerParts(const TrainOptions& options, MpiEnvironment& mpi);
  ~TrainerParts();

  // Frees model, optimizer and loaded packs.
  void Release();
  // Takes the bytes that this rank is foreseen to need, and frees them. Collective. Throws
  // CollectiveRunError on every rank where one cannot have them.
  void RequireMemory(const ScoredPlan& scored);
  // Lets the configuration ask for the packs of the prediction, where it leaves them open. So
  // config.yaml and checkpoints hold what the run does.
  void FixPackLimits();
  // Builds model, optimizer and forecast for a plan. REQUIRES: none are there. Collective.
  void UsePlan(const Plan& given);
  // Weights of a first step.
  void TakeFirstWeights();
  // Weights, moments and state of the checkpoint to go on from, or those of a first step.
  TrainState Restore();
  void StartFeed(const TrainState& state);
  // Runs a step made of the epoch's worst micro-batch, discards its gradients, and logs the peak
  // memory beside the forecast. Changes nothing else. Collective. REQUIRES: weights.
  void ProbeMemory();
  // Adds a step to those that are compared between ranks, and with the prediction; rank 0 warns of
  // a slow rank and of a drift. Collective every few steps.
  void WatchDrift(const RankTimes& step);
  // Records the simulated step of these micro-batches below the one that was just measured.
  void AddPredicted(const std::vector<LayerLoad>& loads);

  // Sums over ranks; collective. Throws AlreadyReportedError when mpirun is ending the job.
  StepSums AllReduceForward(const StepSums& sums);
  // "train.jsonl:17" for each sample of a step.
  std::vector<std::string> SampleNames(const StepBatches& plan) const;
  // What this data rank's micro-batches of a step ask of the layers.
  std::vector<LayerLoad> Loads(const std::vector<Pack>& packs) const;
  int64_t parameter_count() const;  // of the whole model
  void NoteBadSamples(const LoadedPack& pack, int64_t step);
  // Mean loss on data.eval; absent when none of its samples can be used. Collective.
  std::optional<double> HeldOutLoss();
  // Answers the questions of eval.answers, all of them or the first few. False when a stop was
  // asked for meanwhile, after training. Collective.
  bool AnswerQuestions(bool before_training);
  void Report(const TrainState& state, const StepResult& result);
  // Throws DataError when more than data.max_bad_share of the records met, or of all, is bad.
  void RefuseTooManyBad(const TrainState& state) const;
  void Save(const TrainState& state);
  // After too many steps in a row that were skipped: marks the checkpoints that hold these weights
  // as unsound, if they may be the cause, and throws CollectiveRunError. Collective.
  [[noreturn]] void EndForSkippedSteps(const TrainState& state) const;
  void WriteTrace();
  // RUN/answers.jsonl and RUN/report.html, by rank 0. Collective.
  void WriteAnswersAndReport(const TrainState& state);

  RunConfig config;
  GroupLimits given_limits;  // that the configuration asks for; 0: chosen
  StopRequest stop;
  RunSetup setup;
  at::Device device;    // where this rank computes
  Communicator* world;  // of all ranks
  ActivityLog activity;
  std::unique_ptr<RunFolder> folder;  // none in a trial and in a dry run
  std::unique_ptr<OpenedData> data;
  int64_t epoch_samples = 0;             // usable records of an epoch
  int64_t left_out = 0;                  // records that the cost index excludes
  std::unique_ptr<OpenedData> held_out;  // data.eval, where there is one
  std::string checkpoint;                // to go on from; empty in a run that begins
  bool resumes_itself = true;            // not from one that was asked for by name
  std::string newest_saved;              // by this run; empty: none yet
  Plan plan;
  PlanPrediction prediction;
  std::unique_ptr<ParallelModel> model;
  std::unique_ptr<StepForecast> forecast;
  std::unique_ptr<ZeroOptimizer> optimizer;
  std::unique_ptr<StepFeed> feed;
  int64_t accumulation = 1;  // micro-batches of a data rank in a step
  NonFiniteGuard guard;
  DriftMonitor drift;
  StragglerWatch stragglers;
  TimelineRecorder recorder;
  Timeline predicted;  // this rank's spans, as the simulator sees them
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  int64_t first_step = 0;    // steps that were done when this start began
  int64_t trace_until = -1;  // step after which the trace is written; -1 = done
  std::vector<std::unique_ptr<OpenedData>> answer_sources;  // of eval.answers
  std::vector<AnsweredSource> answers;                      // after training
  std::unique_ptr<Quarantine> quarantine;                   // none in a trial
  // Rank 0 alone:
  std::unique_ptr<MetricsWriter> metrics;
  std::unique_ptr<TensorBoardWriter> tensorboard;  // none where it cannot be written
  std::unique_ptr<Progress> progress;
  std::set<std::string> not_written;  // of WriteShown()

 private:
  void OpenFolder(const MpiEnvironment& mpi);
  // A model that answers questions: this rank's where it is whole, else a copy read from the newest
  // checkpoint into `copy`.
  Responder::Model WholeModel(std::optional<LoadedModel>& copy) const;
  void OpenData(bool with_answers);
  void CheckModel() const;
  // Throws where the weights of a first step are not there.
  void CheckFirstWeights() const;
  void ChoosePlan();
  EpochPacker MakePlanner() const;
  void ShowBalance(int64_t epoch) const;
  // For the report. Collective.
  RunSummary Summary(const TrainState& state);
  void RunProbe(const Pack& pack, const std::vector<LayerLoad>& loads);
  // Rank 0 logs the fullest rank's bytes. Collective.
  void LogProbe(int64_t measured, int64_t expected);
  void BuildOptimizer();
  void FindStart(const TrainOptions& options);
  // Limits that the configuration leaves open are those of the checkpoint: a run that goes on with
  // another mesh or memory has the same packs.
  void RestorePackLimits();
  // Where the newest cannot be read, and none was asked for by name: the one before.
  TrainState LoadCheckpoint();
  void RequirePosition(const TrainState& state) const;
  void TellStart(const CheckpointIndex& index) const;
  // Writes a file that only shows the run: where it cannot be written, that is told once for each
  // `what`, and the run goes on.
  void WriteShown(const std::string& what, const std::function<void()>& write);
  void OpenOutputs(const TrainState& state);
  void KeepOldMetrics() const;
  Json Environment() const;
  Json Sections() const;
  Json Settings() const;
};

}  // namespace equipoise
