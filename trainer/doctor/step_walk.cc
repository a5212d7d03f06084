// A rank's time is cut into pieces: passes, updates, waits for data, which a run records inside of
// passes. What lies between two pieces is a gap. A gap in front of an op that takes a value of
// another rank is a wait for that rank until the value was sent; what that rank does meanwhile says
// why: it computes (so the gap has the name of its place in the step), waits for data, or waits for
// a third rank in turn. After its last pass a rank waits for the rank that ends its last pass last;
// after that, for the reduction of gradients. O(gaps x ranks x log ops).

#include "trainer/doctor/step_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "parallel/schedule/op.h"
#include "parallel/schedule/schedule_text.h"

namespace equipoise {
namespace {

// The value that an op takes, or that a receive brings: stage, direction, micro-batch.
std::string ValueKey(int stage, bool forward, int micro_batch) {
  return fmt::format("{}{}{}", stage, forward ? 'f' : 'b', micro_batch);
}

std::string KeyOfPass(const std::string& name) {
  const Op op = ParseOp(name);
  return ValueKey(op.stage, IsForward(op.kind), op.micro_batch);
}

// "reduce bucket 2" of a run, "2REDUCE" of a simulation.
bool IsReduction(const Span& span) {
  return span.lane == kCommunicationLane &&
         (span.name.find("reduce ") == 0 || span.name.find("REDUCE") != std::string::npos);
}

bool IsUpdate(const std::string& name) { return name == "OPT"; }

bool IsPass(const Span& span) {
  const std::string lane = LaneOfAllRanks(span);
  return (lane == kComputeLane || lane == kEncoderLane) && !IsUpdate(span.name);
}

}  // namespace

StepWalk::StepWalk(const TracedStep& step, const Mesh& mesh)
    : step_(step),
      mesh_(mesh),
      ranks_(static_cast<size_t>(mesh.size())),
      arrivals_(static_cast<size_t>(mesh.size())),
      first_pass_s_(step.end_s),
      last_pass_s_(step.start_s) {
  ReadPieces(step.spans);
  ReadArrivals(step.spans);
}

// Cuts waits for data out of the passes in which they are.
void StepWalk::ReadPieces(const Timeline& spans) {
  std::vector<std::vector<Interval>> data(ranks_.size());
  for (const Span& span : spans) {
    const auto rank = static_cast<size_t>(span.rank);
    if (span.lane == kDataLane) data[rank].push_back({span.start_s, span.end_s});
    if (IsReduction(span)) ranks_[rank].last_sum_s = std::max(ranks_[rank].last_sum_s, span.end_s);
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const Interval& wait : data[rank]) ranks_[rank].pieces.push_back({wait, Doing::kData, ""});
  }
  for (const Span& span : spans) {
    if (span.lane != kComputeLane) continue;
    const auto rank = static_cast<size_t>(span.rank);
    double from = span.start_s;
    const auto add = [&](double until) {
      if (until <= from) return;
      ranks_[rank].pieces.push_back(
          {{from, until}, IsUpdate(span.name) ? Doing::kUpdate : Doing::kPass, span.name});
    };
    for (const Interval& wait : data[rank]) {
      if (wait.end_s <= from || wait.start_s >= span.end_s) continue;
      add(wait.start_s);
      from = wait.end_s;
    }
    add(span.end_s);
  }
  for (Rank& mine : ranks_) SortPieces(mine);
  for (const Span& span : spans) {
    if (span.lane == kEncoderLane) AddBeside(span);
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Rank& mine = ranks_[rank];
    mine.last_pass_s = step_.start_s;
    for (const Piece& piece : mine.pieces) {
      if (piece.doing == Doing::kUpdate) continue;
      first_pass_s_ = std::min(first_pass_s_, piece.at.start_s);
      mine.last_pass_s = std::max(mine.last_pass_s, piece.at.end_s);
    }
    if (mine.last_pass_s <= last_pass_s_) continue;
    last_pass_s_ = mine.last_pass_s;
    last_rank_ = static_cast<int>(rank);
  }
}

void StepWalk::SortPieces(Rank& rank) {
  std::sort(rank.pieces.begin(), rank.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.at.start_s < b.at.start_s; });
}

// What no other piece covers of a pass on another stream.
void StepWalk::AddBeside(const Span& span) {
  Rank& rank = ranks_[static_cast<size_t>(span.rank)];
  double from = span.start_s;
  std::vector<Piece> uncovered;
  const auto add = [&](double until) {
    if (until > from) uncovered.push_back({{from, until}, Doing::kPass, span.name});
  };
  for (const Piece& piece : rank.pieces) {
    if (piece.at.start_s >= span.end_s) break;
    add(piece.at.start_s);
    from = std::max(from, piece.at.end_s);
  }
  add(span.end_s);
  rank.pieces.insert(rank.pieces.end(), uncovered.begin(), uncovered.end());
  SortPieces(rank);
}

void StepWalk::ReadArrivals(const Timeline& spans) {
  std::vector<std::map<int, int>> rank_of_stage(ranks_.size());  // by the first rank of a pipeline
  const auto first_of = [&](int rank) {
    return static_cast<size_t>(mesh_.Group(rank, Axis::kPipeline).front());
  };
  std::map<std::pair<int, std::string>, double> sent;
  for (const Span& span : spans) {
    if (IsPass(span)) {
      rank_of_stage[first_of(span.rank)][ParseOp(span.name).stage] = span.rank;
    } else if (LaneOfAllRanks(span) == kCommunicationLane &&
               span.name.find('>') != std::string::npos) {
      sent[{span.rank, span.name}] = span.start_s;
    }
  }
  for (const Span& span : spans) {
    if (LaneOfAllRanks(span) != kCommunicationLane || span.name.find('<') == std::string::npos)
      continue;
    const Op op = ParseOp(span.name);
    const auto& stages = rank_of_stage[first_of(span.rank)];
    const auto from = stages.find(op.peer);
    if (from == stages.end()) continue;
    const auto start =
        sent.find({from->second, ToString({OpKind::kSend, op.peer, op.micro_batch, op.stage})});
    const double sent_s = start == sent.end() ? span.end_s : start->second;
    arrivals_[static_cast<size_t>(span.rank)]
             [ValueKey(op.stage, op.peer < op.stage, op.micro_batch)]
                 .push_back({from->second, sent_s, span.end_s});
  }
}

// The value that is the last to reach the op behind a gap, if it comes after the gap began.
const StepWalk::Arrival* StepWalk::LateArrival(int rank, const Interval& gap) const {
  const std::vector<Piece>& pieces = ranks_[static_cast<size_t>(rank)].pieces;
  const auto next = std::lower_bound(pieces.begin(), pieces.end(), gap.end_s,
                                     [](const Piece& p, double at) { return p.at.end_s <= at; });
  if (next == pieces.end() || next->doing != Doing::kPass) return nullptr;
  const auto& mine = arrivals_[static_cast<size_t>(rank)];
  const auto found = mine.find(KeyOfPass(next->name));
  if (found == mine.end()) return nullptr;
  const auto last =
      std::max_element(found->second.begin(), found->second.end(),
                       [](const Arrival& a, const Arrival& b) { return a.there_s < b.there_s; });
  return last->there_s > gap.start_s ? &*last : nullptr;
}

void StepWalk::Wait(int rank, const Interval& when, IdleCause label, int depth) {
  if (when.length() == 0) return;
  if (when.start_s >= ranks_[static_cast<size_t>(rank)].last_pass_s)
    return Tail(rank, when, label, depth);
  const Arrival* arrival = LateArrival(rank, when);
  if (arrival == nullptr) {
    sum_[IdleCause::kHost] += when.length();
    return;
  }
  const double sent_s = std::clamp(arrival->sent_s, when.start_s, when.end_s);
  const double there_s = std::clamp(arrival->there_s, sent_s, when.end_s);
  LookAt(arrival->from_rank, {when.start_s, sent_s}, label, depth + 1);
  sum_[IdleCause::kPipelineOther] += there_s - sent_s;
  sum_[IdleCause::kHost] += when.end_s - there_s;
}

void StepWalk::LookAt(int rank, const Interval& when, IdleCause label, int depth) {
  if (when.length() == 0) return;
  if (depth > mesh_.size()) {  // a circle: clocks of ranks that are not quite equal
    sum_[label] += when.length();
    return;
  }
  const std::vector<Piece>& pieces = ranks_[static_cast<size_t>(rank)].pieces;
  auto piece = std::lower_bound(pieces.begin(), pieces.end(), when.start_s,
                                [](const Piece& p, double at) { return p.at.end_s <= at; });
  double from = when.start_s;
  for (; piece != pieces.end() && piece->at.start_s < when.end_s; ++piece) {
    const double start = std::max(from, piece->at.start_s);
    const double end = std::min(when.end_s, piece->at.end_s);
    Wait(rank, {from, start}, label, depth);
    sum_[piece->doing == Doing::kData ? IdleCause::kDataWait : label] += std::max(0.0, end - start);
    from = std::max(from, end);
  }
  Wait(rank, {from, when.end_s}, label, depth);
}

// After the last pass of a rank.
void StepWalk::Tail(int rank, const Interval& when, IdleCause label, int depth) {
  const double others_s = std::clamp(last_pass_s_, when.start_s, when.end_s);
  if (rank == last_rank_) {
    sum_[label] += others_s - when.start_s;
  } else {
    LookAt(last_rank_, {when.start_s, others_s}, label, depth + 1);
  }
  const double summed_s =
      std::clamp(ranks_[static_cast<size_t>(rank)].last_sum_s, others_s, when.end_s);
  sum_[IdleCause::kReduceScatter] += summed_s - others_s;
  sum_[IdleCause::kHost] += when.end_s - summed_s;
}

IdleCause StepWalk::LabelOf(int rank, double at_s) const {
  const Rank& mine = ranks_[static_cast<size_t>(rank)];
  if (at_s >= mine.last_pass_s) return IdleCause::kCoolDown;
  const auto first = std::find_if(mine.pieces.begin(), mine.pieces.end(),
                                  [](const Piece& piece) { return piece.doing == Doing::kPass; });
  const bool before = first != mine.pieces.end() && at_s < first->at.start_s;
  return before ? IdleCause::kWarmUp : IdleCause::kPipelineOther;
}

RankIdle StepWalk::Of(int rank) {
  sum_ = {};
  const std::vector<Piece>& pieces = ranks_[static_cast<size_t>(rank)].pieces;
  double from = step_.start_s;
  const auto gap = [&](double until) {
    // Before any rank's first pass all of them prepare the step.
    const double prepared = std::clamp(first_pass_s_, from, std::max(from, until));
    sum_[IdleCause::kHost] += prepared - from;
    // A rank that has ended its passes and updates waits in two parts, as one that has not.
    if (until > prepared) Wait(rank, {prepared, until}, LabelOf(rank, prepared), 0);
  };
  for (const Piece& piece : pieces) {
    gap(piece.at.start_s);
    const double seconds = std::max(0.0, piece.at.end_s - std::max(from, piece.at.start_s));
    if (piece.doing == Doing::kData) {
      sum_[IdleCause::kDataWait] += seconds;
    } else {
      (piece.doing == Doing::kUpdate ? sum_.update_s : sum_.compute_s) += seconds;
    }
    from = std::max(from, piece.at.end_s);
  }
  gap(step_.end_s);
  return sum_;
}

}  // namespace equipoise
