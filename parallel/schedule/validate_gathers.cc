#include "parallel/schedule/validate_gathers.h"

#include <algorithm>
#include <string>

#include "parallel/schedule/fault_grid.h"

namespace equipoise {
namespace {

using Problem = std::optional<std::string>;

// What comes before and after a pass.
struct Rules {
  bool gathers = false, frees = false;

  bool Gathers(const Op& op) const { return gathers && op.kind != OpKind::kWeightGradient; }
  bool Frees(const Op& op, const StageGraph& graph) const {
    const bool sums = MakesWeightGradient(op.kind) && graph.stages[op.stage].needs_weight_gradient;
    return Gathers(op) || (frees && sums);
  }
};

Op Around(OpKind kind, const Op& pass) {
  return {kind, pass.stage, pass.micro_batch, -1, false, pass.kind};
}

Op PassOf(const Op& op) { return {op.pass, op.stage, op.micro_batch}; }

// Walks a rank's list, and knows the pass that was gathered for or run, and not freed.
class Walk {
 public:
  Walk(const Schedule& schedule, const Rules& rules) : schedule_(schedule), rules_(rules) {}

  Problem Next(const Op& op) {
    if (op.kind == OpKind::kGather) {
      if (is_open_) return Unfreed();
      Open(PassOf(op));
      gathered_ = true;
    } else if (op.kind == OpKind::kFree) {
      const Op pass = PassOf(op);
      if (is_open_ ? open_ != pass : rules_.Gathers(pass))
        return "frees what " + ToString(Around(OpKind::kGather, pass)) + " has not gathered";
      is_open_ = gathered_ = false;
    } else if (IsCompute(op.kind)) {
      return Run(op);
    } else if (is_open_ && op.kind == OpKind::kReduce) {
      return Unfreed();
    }
    return std::nullopt;
  }
  Problem End() const { return is_open_ ? Unfreed() : std::nullopt; }

 private:
  static Problem Missing(const Op& op) { return ToString(op) + " is missing before this"; }
  Problem Unfreed() const { return Missing(Around(OpKind::kFree, open_)); }

  void Open(const Op& pass) {
    is_open_ = true;
    open_ = pass;
  }

  Problem Run(const Op& op) {
    const Op pass{op.kind, op.stage, op.micro_batch};
    if (is_open_ && open_ != pass) return Unfreed();
    if (rules_.Gathers(op) && !gathered_) return Missing(Around(OpKind::kGather, op));
    if (rules_.Frees(op, schedule_.graph)) Open(pass);
    return std::nullopt;
  }

  const Schedule& schedule_;
  const Rules rules_;
  bool is_open_ = false, gathered_ = false;
  Op open_;
};

Rules RulesOf(const Schedule& schedule) {
  Rules rules;
  for (const std::vector<Op>& list : schedule.ranks) {
    for (const Op& op : list) {
      rules.gathers = rules.gathers || op.kind == OpKind::kGather;
      rules.frees = rules.frees || (op.kind == OpKind::kFree && MakesWeightGradient(op.pass));
    }
  }
  return rules;
}

}  // namespace

std::optional<ScheduleFault> FindGatherFault(const Schedule& schedule) {
  const Rules rules = RulesOf(schedule);
  if (!rules.gathers && !rules.frees) return std::nullopt;
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    const std::vector<Op>& list = schedule.ranks[rank];
    Walk walk(schedule, rules);
    for (int p = 0; p < static_cast<int>(list.size()); ++p) {
      if (const Problem problem = walk.Next(list[p])) return FaultAt(schedule, {rank, p}, *problem);
    }
    if (const Problem problem = walk.End())
      return FaultAt(schedule, {rank, static_cast<int>(list.size())}, *problem);
  }
  return std::nullopt;
}

}  // namespace equipoise
