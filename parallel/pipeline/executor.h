#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/device.h"
#include "parallel/schedule/schedule.h"
#include "parallel/timeline.h"

namespace equipoise {

// This rank's part of the model, as the executor sees it.
class StageRunner {
 public:
  virtual ~StageRunner() = default;

  // Runs a stage on a micro-batch and keeps what its backward needs. `inputs`: the rows of each
  // stage before it that sends some, ascending. Returns the output's rows; undefined when there are
  // none, and for the stage of the loss.
  virtual at::Tensor Forward(int stage, int micro_batch, const std::vector<at::Tensor>& inputs) = 0;
  // Adds the stage's weight gradients and returns the gradient of each input; `gradient` is that of
  // the output, undefined for the stage of the loss. `last`: no weight gradient of this stage comes
  // after it in this step.
  virtual std::vector<at::Tensor> Backward(int stage, int micro_batch, const at::Tensor& gradient,
                                           bool last) = 0;
  // The same in two halves: the input gradients, and all that the second half does not do; then the
  // weight gradients of linear layers. The first half of a stage without weight gradients is
  // the whole backward.
  virtual std::vector<at::Tensor> BackwardInput(int stage, int micro_batch,
                                                const at::Tensor& gradient) = 0;
  virtual void BackwardWeights(int stage, int micro_batch, bool last) = 0;
  // An empty tensor for the rows (or their gradient) that stage `from` hands to the stage after it.
  virtual at::Tensor EmptyBoundary(int from, int micro_batch) = 0;
  // All weight gradients of the stage are complete: starts their sum over the data ranks.
  virtual void Reduce(int stage) = 0;
  // Waits for all sums.
  virtual void FinishReduction() = 0;
  // The stage's layers, for messages: "language_model.model.layers.3 to .5".
  virtual std::string DescribeStage(int stage) const = 0;
};

// Runs one rank's list of a schedule, whatever schedule it is.
//
// Transfers are asynchronous: S starts one and goes on, R posts a buffer, and the op that takes the
// value waits for it. A value is dropped when the op that takes it has run, or its send has ended.
// Not thread-safe. `runner`, `group` and `recorder` must outlive it.
class Executor {
 public:
  // `group`: the pipeline ranks, in order. Spans are recorded as ToString(Op): "2F0" in lane
  // "compute", "3R0<2" in lane "communication" from its posting to its arrival, and "wait 3R0<2" in
  // lane "wait" while compute stands still for it. `device`: where the stages compute, whose time
  // is what counts.
  Executor(StageRunner& runner, Communicator& group, TimelineRecorder& recorder,
           at::Device device = at::kCPU);

  // Throws RunError that names rank, operation, peer, the op of the schedule and its layers, when
  // another rank is lost or does not come before the deadline.
  // REQUIRES: a valid schedule (validate.h) with transfers.
  void Run(const Schedule& schedule);

  // Seconds of compute in the last Run(), and from its start to its end.
  double busy_s() const { return busy_s_; }
  double span_s() const { return span_s_; }

 private:
  struct Value {
    at::Tensor tensor;
    Op recv;  // kRecv when it comes from another rank
    Work arrival;
    Work::Clock::time_point posted;
  };
  using Key = std::tuple<int, int, int>;  // from stage, to stage, micro-batch
  struct Sending {
    Op op;
    Work work;
    Work::Clock::time_point start;
  };

  // "3B5, language_model.model.layers.3 to .5"
  std::string Describe(const Op& op) const;
  void RunOne(const Op& op);
  bool IsLast(const Op& op) const;  // that adds to its stage's weight gradients
  void Forward(const Op& op);
  void Backward(const Op& op);
  void Send(const Op& op);
  void Post(const Op& op);
  at::Tensor Take(int from, int to, int micro_batch);
  void DropSent(bool wait);
  void Compute(const Op& op);
  void AddComputed();

  StageRunner& runner_;
  Communicator& group_;
  TimelineRecorder& recorder_;
  DeviceClock clock_;
  struct Computed {
    std::string op;
    DeviceClock::Mark start, end;
  };
  std::vector<Computed> computed_;  // whose times are not known yet
  const Schedule* schedule_ = nullptr;
  std::map<int, Op> last_backward_;  // by stage: its last op that makes weight gradients
  std::map<Key, Value> values_;
  std::vector<Sending> sending_;
  double busy_s_ = 0, span_s_ = 0, waited_s_ = 0;
};

}  // namespace equipoise
