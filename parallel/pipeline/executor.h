#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/device.h"
#include "parallel/schedule/schedule.h"
#include "parallel/streams.h"
#include "parallel/timeline.h"

namespace equipoise {

// The stages of this rank, as the executor runs them. Activations and gradients are [rows, width]
// in the compute dtype.
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
  // Backward() in two halves (zero bubble, arXiv 2401.10241): first the input gradients and
  // everything that the second half does not do, then the weight gradients of linear layers.
  // Without trainable weights the first half is the whole backward.
  virtual std::vector<at::Tensor> BackwardInput(int stage, int micro_batch,
                                                const at::Tensor& gradient) = 0;
  virtual void BackwardWeights(int stage, int micro_batch, bool last) = 0;
  // An uninitialized tensor for the rows (or their gradient) that stage `from` sends to the next
  // one.
  virtual at::Tensor EmptyBoundary(int from, int micro_batch) = 0;
  // Before and after a pass, for data ranks that share out weights or gradients: GATHER and FREE.
  virtual void Gather(const Op& /*op*/) {}
  virtual void Free(const Op& /*op*/) {}
  // Starts the reduction of the stage's weight gradients over the data ranks; they are complete.
  virtual void Reduce(int stage) = 0;
  // Waits for all reductions.
  virtual void FinishReduction() = 0;
  // The stage's layers, for messages: "language_model.model.layers.3 to .5".
  virtual std::string DescribeStage(int stage) const = 0;
};

// Where copies of an encoder have fewer tensor ranks than the language model: of its list a rank
// runs the ops of its own lane and those of none (StageNode::lane).
struct ExecutorLane {
  int lane = 0;                    // of this rank
  int ranks = 1;                   // tensor ranks of each lane, neighbours
  Communicator* tensor = nullptr;  // the tensor ranks of all lanes, in order; null: one lane
};

// An interpreter of one rank's list of a schedule, whatever builder made it.
//
// Transfers are asynchronous: S starts one and goes on, R posts a buffer, and the op that consumes
// the value waits for it. A value is freed when its consumer has run or its send has ended. What a
// stage in a lane makes for one in none, that lane gives to all tensor ranks when the op that takes
// it runs; a gradient, which all of them have, only that lane takes. Not thread-safe. `runner`,
// `group` and `recorder` must outlive it.
class Executor {
 public:
  // `group`: the pipeline ranks, in order. Spans are recorded as ToString(Op): "2F0" in lane
  // "compute", "3R0<2" in lane "communication" from its posting to its arrival, and "wait 3R0<2" in
  // lane "wait" while compute is blocked on it. `device`: where the stages compute; spans of
  // compute are in its time. `encoder_stream`: on a GPU, the encoder's passes are given to a stream
  // of their own, beside the others, in lane "compute, encoder": it computes while the language
  // model's tensor ranks sum.
  Executor(StageRunner& runner, Communicator& group, TimelineRecorder& recorder,
           at::Device device = at::kCPU, const ExecutorLane& lane = {},
           bool encoder_stream = false);

  // Runs one step. Throws RunError that names rank, operation, peer, the op of the schedule and its
  // layers, when another rank is lost or misses the deadline.
  // REQUIRES: a valid schedule (validate.h) with transfers.
  // Values that passes of the next step take (RunAhead) stay for the next Run() of such a step.
  void Run(const Schedule& schedule);
  // Forgets those.
  void DropAhead() { ahead_.clear(); }

  // Seconds of compute in the last Run(), and from its start to its end.
  double busy_s() const { return busy_s_; }
  double span_s() const { return span_s_; }

 private:
  struct Value {
    at::Tensor tensor;
    Op recv;  // its kRecv where it comes from another rank; else the op that made it
    Work arrival;
    Work::Clock::time_point posted;
    StreamMark made;  // where what takes it runs on another stream
  };
  using Key = std::tuple<int, int, int>;  // from stage, to stage, micro-batch
  struct Transfer {
    Op op;
    Work work;
    Work::Clock::time_point start;
  };

  // "3B5, language_model.model.layers.3 to .5"
  std::string Describe(const Op& op) const;
  void RunOne(const Op& op);
  bool IsLast(const Op& op) const;  // of those that add to its stage's weight gradients
  void Forward(const Op& op);
  void Backward(const Op& op);
  void Send(const Op& op);
  void Post(const Op& op);
  at::Tensor Take(int from, int to, int micro_batch);
  // Whether a value between two stages lies on other tensor ranks than those of this rank's lane.
  bool OfOtherLane(int stage, int peer) const;
  at::Tensor TakeFromLane(const Op& op, int from);
  void DropEnded(bool wait);
  void KeepForNextStep();
  void Compute(const Op& op);
  void AddDeviceSpans();
  bool IsEncoder(int stage) const {
    return schedule_->graph.stages[static_cast<size_t>(stage)].encoder;
  }
  // The stream that an op is given to; none: the compute stream.
  std::optional<c10::Stream> StreamOf(const Op& op) const;
  bool ChangesStream(int from, int to) const { return beside_ && IsEncoder(from) != IsEncoder(to); }
  void Keep(const Op& made_by, int to, const at::Tensor& tensor);
  void MeetAtLast(const Op& op);

  StageRunner& runner_;
  Communicator& group_;
  TimelineRecorder& recorder_;
  const ExecutorLane lane_;
  const at::Device device_;
  const std::optional<c10::Stream> beside_;  // of the encoder's passes
  std::optional<c10::Stream> compute_;       // of the others, where there are two
  // Whether a stage of the compute stream, and one of the encoder's, has had its last backward.
  std::array<bool, 2> ended_{};
  DeviceClock clock_;
  struct DeviceSpan {
    const char* lane;
    std::string name;
    DeviceClock::Mark start, end;
  };
  DeviceClock::Mark began_;               // of the op that runs: behind what it waits for
  std::vector<DeviceSpan> device_spans_;  // of a GPU, whose times are not known yet
  const Schedule* schedule_ = nullptr;
  std::map<int, Op> last_backward_;  // by stage: its last op that makes weight gradients
  std::map<Key, Value> values_;
  std::map<Key, Value> ahead_;       // of the next step
  std::vector<Transfer> transfers_;  // sent, and those received that an op has taken
  double busy_s_ = 0, span_s_ = 0, waited_s_ = 0;
};

}  // namespace equipoise
