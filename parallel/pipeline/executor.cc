// Runs a rank's ops strictly in the order of its list; nothing is decided here. Values between
// stages lie in a map (from stage, to stage, micro-batch): an op puts in what it makes, a transfer
// moves it, its consumer takes it out, so that the map is empty at the end of a step, but for what
// the next step is to take of passes that run ahead of it.
//
// A receive is posted where the list has it, ahead of the op that needs it, and only that op waits:
// on a GPU its stream does, and the host goes on. The validator (schedule/validate.h) has proved
// that this order ends even if every transfer blocks. Joined transfers start as one
// (TransferGroup), receives first, so that two ranks that exchange values both have a buffer before
// either sends.
//
// Tensor ranks run one list, each its lane's part of it. The proof for the list holds for them: ops
// that a rank passes over only take waiting away, and those of no lane, which are collective over
// tensor ranks, stand at one place of the order in which the proof has run all of them.
//
// Where the encoder has a stream of its own (Optimus, arXiv 2408.03505, section 4.2: its kernels in
// the bubbles of tensor ranks), the host still gives ops to the GPU in the order of the list, each
// to the stream of its stage: what an op takes from a stage of the other stream, it waits for, and
// the streams meet where a step begins and ends and where sums of gradients start. So results have
// the same bits.

#include "parallel/pipeline/executor.h"

#include <ATen/ops/add.h>
#include <c10/core/StreamGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/already_reported_error.h"
#include "parallel/comm/transfer_group.h"

namespace equipoise {
namespace {

using Clock = Work::Clock;

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Executor::Executor(StageRunner& runner, Communicator& group, TimelineRecorder& recorder,
                   at::Device device, const ExecutorLane& lane, bool encoder_stream)
    : runner_(runner),
      group_(group),
      recorder_(recorder),
      lane_(lane),
      device_(device),
      beside_(encoder_stream ? StreamBeside(device) : std::nullopt),
      clock_(device) {}

void Executor::Run(const Schedule& schedule) {
  clock_.Start();
  const Clock::time_point start = Clock::now();
  schedule_ = &schedule;
  busy_s_ = waited_s_ = 0;
  const std::vector<Op>& ops = schedule.ranks[static_cast<size_t>(group_.rank())];
  if (beside_) {
    compute_ = ComputeStream(device_);
    ended_ = {};
    StreamMark::Of(*compute_).HoldUp(*beside_);
  }
  if (!schedule.ahead.before.forwards.empty()) values_ = std::exchange(ahead_, {});
  last_backward_.clear();
  for (const Op& op : ops) {
    const bool own = op.micro_batch < schedule.own();
    if (own && MakesWeightGradient(op.kind)) last_backward_[op.stage] = op;
  }
  for (size_t i = 0; i < ops.size();) {
    size_t end = i + 1;
    while (end < ops.size() && ops[end].joined) ++end;
    {
      const TransferGroup together(group_);
      // Receives first: whatever the peer does, there is a buffer.
      for (const bool receives : {true, false}) {
        for (size_t k = i; k < end; ++k) {
          if (!RunsInLane(schedule.graph, ops[k], lane_.lane)) continue;
          if ((ops[k].kind == OpKind::kRecv) == receives) RunOne(ops[k]);
        }
      }
    }
    i = end;
    DropEnded(/*wait=*/false);
  }
  if (beside_) StreamMark::Of(*beside_).WaitOnStream();
  group_.Announce("");
  KeepForNextStep();
  DropEnded(/*wait=*/true);
  if (clock_.runs_behind()) AddDeviceSpans();
  span_s_ = Seconds(Clock::now() - start);
}

// With what is on its way there: its sender has begun to send in this step.
void Executor::KeepForNextStep() {
  for (auto& [key, value] : values_) {
    const auto& [from, to, micro_batch] = key;
    const int number = micro_batch - schedule_->own();
    EQUIPOISE_CHECK(number >= 0, "a value that no op has consumed");
    if (value.recv.kind == OpKind::kRecv) {
      value.arrival.WaitOnStream();
      transfers_.push_back({value.recv, value.arrival, value.posted});
      value.recv = Op{};
    }
    ahead_[{from, to, number}] = std::move(value);
  }
  values_.clear();
}

std::string Executor::Describe(const Op& op) const {
  return fmt::format("{}, {}", ToString(op), runner_.DescribeStage(op.stage));
}

std::optional<c10::Stream> Executor::StreamOf(const Op& op) const {
  if (op.kind == OpKind::kReduce || op.kind == OpKind::kOptimizer) return std::nullopt;
  return beside_ && IsEncoder(op.stage) ? beside_ : std::nullopt;
}

// A bucket of gradients whose sum an op starts may hold some that the other stream has made. Before
// a stage's last backward none is full.
void Executor::MeetAtLast(const Op& op) {
  if (!beside_ || !IsLast(op)) return;
  const bool encoder = IsEncoder(op.stage);
  if (ended_[encoder ? 0 : 1]) StreamMark::Of(encoder ? *compute_ : *beside_).WaitOnStream();
  ended_[encoder ? 1 : 0] = true;
}

void Executor::RunOne(const Op& op) {
  const c10::OptionalStreamGuard on(StreamOf(op));
  if (IsCompute(op.kind)) group_.Announce(Describe(op));
  try {
    switch (op.kind) {
      case OpKind::kSend:
        return Send(op);
      case OpKind::kRecv:
        return Post(op);
      case OpKind::kGather:
        return runner_.Gather(op);
      case OpKind::kFree:
        return runner_.Free(op);
      case OpKind::kReduce:
        if (beside_ && IsEncoder(op.stage)) StreamMark::Of(*beside_).WaitOnStream();
        return runner_.Reduce(op.stage);
      case OpKind::kOptimizer:
        if (beside_) StreamMark::Of(*beside_).WaitOnStream();
        return runner_.FinishReduction();
      default:
        return Compute(op);
    }
  } catch (const AlreadyReportedError&) {
    throw;  // other ranks have reported it
  } catch (const RunError& error) {
    const std::string at = op.kind == OpKind::kOptimizer ? ToString(op) : Describe(op);
    throw RunError(fmt::format("{} (at {})", error.what(), at));
  }
}

void Executor::Compute(const Op& op) {
  MeetAtLast(op);
  const Clock::time_point start = Clock::now();
  began_ = clock_.Now();
  const double waited = waited_s_;
  if (IsForward(op.kind)) {
    Forward(op);
  } else if (op.kind == OpKind::kWeightGradient) {
    group_.ProgressInBackground();
    runner_.BackwardWeights(op.stage, op.micro_batch, IsLast(op));
  } else {
    Backward(op);
  }
  if (clock_.runs_behind()) {
    const char* lane = StreamOf(op) ? kEncoderLane : kComputeLane;
    device_spans_.push_back({lane, ToString(op), began_, clock_.Now()});
    return;
  }
  const auto wait = std::chrono::duration<double>(waited_s_ - waited);
  const Clock::time_point began = start + std::chrono::duration_cast<Clock::duration>(wait);
  busy_s_ += Seconds(Clock::now() - began);
  recorder_.Add(kComputeLane, ToString(op), began, Clock::now());
}

// Spans of a GPU include what an op waited for on the device itself, beside its arrivals.
void Executor::AddDeviceSpans() {
  clock_.Finish();
  std::vector<std::pair<Clock::time_point, Clock::time_point>> busy;
  for (const DeviceSpan& span : device_spans_) {
    const Clock::time_point start = clock_.TimeOf(span.start), end = clock_.TimeOf(span.end);
    if (span.lane != kWaitLane) busy.emplace_back(start, end);
    recorder_.Add(span.lane, span.name, start, end);
  }
  device_spans_.clear();
  // Spans of two streams overlap.
  std::sort(busy.begin(), busy.end());
  Clock::time_point until = Clock::time_point::min();
  for (const auto& [start, end] : busy) {
    if (end > until) busy_s_ += Seconds(end - std::max(start, until));
    until = std::max(end, until);
  }
}

void Executor::Forward(const Op& op) {
  std::vector<at::Tensor> inputs;
  for (const int from : schedule_->graph.Previous(op.stage)) {
    if (schedule_->work.Sends(from, op.micro_batch)) inputs.push_back(TakeFromLane(op, from));
  }
  group_.ProgressInBackground();
  const at::Tensor output = runner_.Forward(op.stage, op.micro_batch, inputs);
  if (!schedule_->work.Sends(op.stage, op.micro_batch)) return;
  for (const int to : schedule_->graph.stages[static_cast<size_t>(op.stage)].next) {
    Keep(op, to, output);
  }
}

void Executor::Backward(const Op& op) {
  const StageGraph& graph = schedule_->graph;
  const StageNode& node = graph.stages[static_cast<size_t>(op.stage)];
  at::Tensor gradient;
  if (schedule_->work.Sends(op.stage, op.micro_batch)) {
    for (const int next : node.next) {
      if (!graph.stages[static_cast<size_t>(next)].needs_input_gradient) continue;
      const at::Tensor part = Take(next, op.stage, op.micro_batch);
      gradient = gradient.defined() ? at::add(gradient, part) : part;
    }
  }
  group_.ProgressInBackground();
  const std::vector<at::Tensor> gradients =
      op.kind == OpKind::kInputGradient
          ? runner_.BackwardInput(op.stage, op.micro_batch, gradient)
          : runner_.Backward(op.stage, op.micro_batch, gradient, IsLast(op));
  if (!node.needs_input_gradient) return;
  size_t i = 0;
  for (const int from : graph.Previous(op.stage)) {
    if (!schedule_->work.Sends(from, op.micro_batch)) continue;
    EQUIPOISE_CHECK(i < gradients.size(), "no gradient for stage ", from);
    if (OfOtherLane(op.stage, from)) {
      ++i;
      continue;
    }
    Keep(op, from, gradients[i++]);
  }
}

void Executor::Keep(const Op& made_by, int to, const at::Tensor& tensor) {
  Value value{tensor, made_by, Work(), {}, {}};
  if (ChangesStream(made_by.stage, to)) value.made = StreamMark::Here(device_);
  values_[{made_by.stage, to, made_by.micro_batch}] = std::move(value);
}

bool Executor::IsLast(const Op& op) const {
  const auto last = last_backward_.find(op.stage);
  return last != last_backward_.end() && last->second == op;
}

void Executor::Send(const Op& op) {
  const auto found = values_.find({op.stage, op.peer, op.micro_batch});
  EQUIPOISE_CHECK(found != values_.end(), "nothing to send at ", ToString(op));
  const at::Tensor tensor = found->second.tensor.contiguous();
  values_.erase(found);
  const int peer = schedule_->graph.stages[static_cast<size_t>(op.peer)].rank;
  const Clock::time_point start = Clock::now();
  transfers_.push_back({op, group_.Send(tensor, peer), start});
}

void Executor::Post(const Op& op) {
  Value value;
  value.tensor = runner_.EmptyBoundary(std::min(op.stage, op.peer), op.micro_batch);
  value.recv = op;
  value.posted = Clock::now();
  const int peer = schedule_->graph.stages[static_cast<size_t>(op.peer)].rank;
  value.arrival = group_.Recv(value.tensor, peer);
  values_[{op.peer, op.stage, op.micro_batch}] = std::move(value);
}

at::Tensor Executor::Take(int from, int to, int micro_batch) {
  const auto found = values_.find({from, to, micro_batch});
  EQUIPOISE_CHECK(found != values_.end(), "stage ", to, " has nothing from stage ", from,
                  " for micro-batch ", micro_batch);
  Value value = std::move(found->second);
  values_.erase(found);
  if (value.recv.kind != OpKind::kRecv) {
    if (ChangesStream(from, to)) {
      value.made.WaitOnStream();
      UseOnStream(value.tensor);
    }
    return value.tensor;
  }
  const std::string name = "wait " + ToString(value.recv);
  if (clock_.runs_behind()) {
    const DeviceClock::Mark asked = clock_.Now();
    value.arrival.WaitOnStream();
    began_ = clock_.Now();
    device_spans_.push_back({kWaitLane, name, asked, began_});
  } else {
    const Clock::time_point start = Clock::now();
    value.arrival.Wait();
    const Clock::time_point arrived = Clock::now();
    waited_s_ += Seconds(arrived - start);
    recorder_.Add(kWaitLane, name, start, arrived);
  }
  transfers_.push_back({value.recv, value.arrival, value.posted});
  return value.tensor;
}

bool Executor::OfOtherLane(int stage, int peer) const {
  const Op between{OpKind::kSend, stage, 0, peer};
  return !RunsInLane(schedule_->graph, between, lane_.lane);
}

// The input of an op of no lane from a stage in one, on all tensor ranks. These reach the op in one
// order, and so the broadcast, which no op of a lane can stand in the way of.
at::Tensor Executor::TakeFromLane(const Op& op, int from) {
  const std::vector<StageNode>& stages = schedule_->graph.stages;
  const int lane = stages[static_cast<size_t>(from)].lane;
  const bool shared = lane >= 0 && stages[static_cast<size_t>(op.stage)].lane < 0;
  if (!shared) return Take(from, op.stage, op.micro_batch);
  at::Tensor rows = OfOtherLane(op.stage, from) ? runner_.EmptyBoundary(from, op.micro_batch)
                                                : Take(from, op.stage, op.micro_batch).contiguous();
  EQUIPOISE_CHECK(lane_.tensor != nullptr, "a lane without tensor ranks");
  const Clock::time_point start = Clock::now();
  lane_.tensor->Broadcast(rows, lane * lane_.ranks).WaitOnStream();
  if (!clock_.runs_behind()) waited_s_ += Seconds(Clock::now() - start);
  return rows;
}

void Executor::DropEnded(bool wait) {
  std::vector<Transfer> left;
  for (Transfer& transfer : transfers_) {
    if (!wait && !transfer.work.Done()) {
      left.push_back(std::move(transfer));
      continue;
    }
    transfer.work.Wait();
    recorder_.Add(kCommunicationLane, ToString(transfer.op), transfer.start,
                  transfer.work.FinishedAt());
  }
  transfers_ = std::move(left);
}

}  // namespace equipoise
