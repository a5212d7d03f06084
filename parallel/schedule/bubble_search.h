#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "parallel/schedule/encoder_pipelines.h"
#include "parallel/schedule/free_time.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/timetable.h"

namespace equipoise {

// Seconds of the encoder's passes and transfers, asked of the costs once.
class EncoderTimes {
 public:
  // `schedule`: of AddEncoderStages(), copied from.
  EncoderTimes(const Schedule& schedule, const EncoderPipelines& encoder,
               const SimulationCosts& costs);

  int num_stages() const { return stages_; }
  double Forward(int stage, int micro_batch) const { return At(stage, micro_batch).forward_s; }
  double Backward(int stage, int micro_batch) const { return At(stage, micro_batch).backward_s; }
  // Of a stage's output to the stage after it, and of that output's gradient back.
  double ToNext(int stage, int micro_batch) const { return At(stage, micro_batch).output_s; }
  double ToStage(int stage, int micro_batch) const { return At(stage, micro_batch).gradient_s; }
  // Whether two micro-batches take as long on every stage. True only for neighbours, or where all
  // between them do too.
  bool Same(int one, int other) const { return columns_[one] == columns_[other]; }
  // Of all passes of the encoder, whatever the micro-batch.
  double shortest_s() const { return shortest_s_; }

 private:
  struct StageTimes {
    double forward_s = 0, backward_s = 0, output_s = 0, gradient_s = 0;
    bool operator==(const StageTimes&) const = default;
  };
  const StageTimes& At(int stage, int micro_batch) const {
    return times_[columns_[micro_batch] + stage];
  }

  int stages_;
  std::vector<int> columns_;       // [micro-batch] where its stages begin in times_
  std::vector<StageTimes> times_;  // [column][stage]; equal neighbours share one
  double shortest_s_ = std::numeric_limits<double>::infinity();
};

// The encoder's passes beside a timetable.
struct BubblePlan {
  struct Pass {
    Op op;
    double start_s = 0;
    bool operator==(const Pass&) const = default;
  };
  double lead_s = 0;  // by which all ops of the timetable are later
  double step_s = 0;
  std::vector<int> owners;               // [micro-batch] its encoder pipeline; -1: no pictures
  std::vector<std::vector<Pass>> ranks;  // [rank] V by micro-batch, then U by micro-batch
  bool operator==(const BubblePlan&) const = default;
};

// What decides which encoder pipeline takes a micro-batch, of those that are in time for it.
enum class OwnerRule : uint8_t {
  kEarliest,  // the one that is ready first
  kBalanced,  // the one whose backwards so far leave most of the bubble at its end
};

// Finds room for the encoder's passes in the bubbles of a timetable.
class BubbleSearch {
 public:
  // Refers to all arguments. With `ends_alone`, in the bubbles before a rank's first op and after
  // its last.
  BubbleSearch(const Schedule& schedule, const EncoderPipelines& encoder, const EncoderTimes& times,
               const Timetable& timetable, bool ends_alone);

  BubblePlan Run(OwnerRule rule);
  // Whether both have the same bubbles that some pass fits in, and so the same plans.
  bool SameBubbles(const BubbleSearch& other) const { return idle_ == other.idle_; }

 private:
  // Plans with that lead. Where an encoder's output is late for the timetable, it returns at once
  // by how many seconds; else 0. A plan of `limit_s` or more is left as it is then.
  double Try(double lead_s, OwnerRule rule, double limit_s, BubblePlan& plan);
  double PlaceForward(int micro_batch, OwnerRule rule, BubblePlan& plan);
  // When the output of a pipeline that takes a micro-batch now is where it is needed.
  double Arrival(int pipeline, int micro_batch);
  void PlaceBackward(int micro_batch, BubblePlan& plan);
  // Finds room for a micro-batch's pass through a pipeline and returns when the result is where it
  // is needed.
  double Walk(int pipeline, int micro_batch, bool forward, double earliest_s,
              std::vector<BubblePlan::Pass>& passes);
  void Commit(const std::vector<BubblePlan::Pass>& passes, bool forward, BubblePlan& plan);
  double SecondsOf(int stage, int micro_batch, bool forward) const {
    return forward ? times_.Forward(stage, micro_batch) : times_.Backward(stage, micro_batch);
  }

  const Schedule& schedule_;
  const EncoderPipelines& encoder_;
  const EncoderTimes& times_;
  const Timetable& timetable_;
  const int pipelines_;
  const double slack_s_;        // of rounding
  std::vector<double> tail_s_;  // [pipeline] bubble after the last op of its ranks
  std::vector<FreeTime> idle_;  // [rank] beside the timetable alone, with no lead
  std::vector<FreeTime> free_;  // [rank][lane]
  // [stage] of free_, the time of the tensor ranks that hold it: of one lane, or of a whole rank.
  std::vector<int> free_of_;
  std::vector<double> last_s_;     // [stage] end of its last pass in this direction
  std::vector<double> arrival_s_;  // [micro-batch] of its output at the language model
  std::vector<double> owned_s_;    // [pipeline] backwards of its micro-batches, a rank
  std::vector<bool> repeats_;      // [micro-batch] whether its forwards take as long as the last's
  // [pipeline] Arrival() of the last micro-batch, where the pipeline has not taken it, and the
  // passes by which it arrives then.
  std::vector<std::optional<double>> known_s_;
  std::vector<std::vector<BubblePlan::Pass>> passes_;
};

}  // namespace equipoise
