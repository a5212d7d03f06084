// The checks run from local to global, so that the first fault found is the simplest to explain:
// shape, membership of each op, doubles, missing compute ops, missing or superfluous transfers,
// order of each op after its producers on its own rank, ascending micro-batches, common order of
// transfers between two ranks, reductions, and last the proof that the lists run to their end
// (StuckWithBlockingTransfers()). Each check may rely on those before it. With an index of sorted
// ops all are O(ops log ops).

#include "parallel/schedule/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "configs/base/error.h"
#include "parallel/schedule/dependencies.h"
#include "parallel/schedule/fault_grid.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/validate_gathers.h"
#include "parallel/schedule/validate_transfers.h"

namespace equipoise {
namespace {

using Problem = std::optional<std::string>;

bool Is(const Op& op, std::initializer_list<OpKind> kinds) {
  return std::find(kinds.begin(), kinds.end(), op.kind) != kinds.end();
}

Op WithKind(Op op, OpKind kind) {
  op.kind = kind;
  return op;
}

// Searches for one kind of fault after the other; each search begins at the first op of rank 0.
class FaultFinder {
 public:
  explicit FaultFinder(const Schedule& schedule) : schedule_(schedule) {}

  std::optional<ScheduleFault> Find() {
    if (auto problem = ShapeProblem()) return ScheduleFault{{0, 0}, *problem};
    if (auto fault = EachOp(&FaultFinder::MembershipProblem)) return fault;
    index_.emplace(schedule_);
    if (auto fault = FindDouble()) return fault;
    if (auto fault = FindMissingCompute()) return fault;
    if (auto fault = FindTransferFault(schedule_, *index_)) return fault;
    dependencies_.emplace(schedule_);
    if (auto fault = EachOp(&FaultFinder::OrderProblem)) return fault;
    if (auto fault = FindDescent()) return fault;
    if (auto fault = FindTransferOrderFault(schedule_)) return fault;
    if (auto fault = FindReductionFault()) return fault;
    if (auto fault = FindGatherFault(schedule_)) return fault;
    return FindDeadlock();
  }

 private:
  const Op& OpAt(const OpPlace& place) const { return schedule_.ranks[place.rank][place.position]; }
  const StageNode& StageOf(const Op& op) const { return schedule_.graph.stages[op.stage]; }

  std::optional<ScheduleFault> EachOp(Problem (FaultFinder::*find)(const OpPlace&) const) const {
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      for (size_t p = 0; p < schedule_.ranks[r].size(); ++p) {
        const OpPlace place{static_cast<int>(r), static_cast<int>(p)};
        if (auto problem = (this->*find)(place)) return FaultAt(schedule_, place, *problem);
      }
    }
    return std::nullopt;
  }

  Problem ShapeProblem() const {
    try {
      CheckGraph(schedule_.graph);
    } catch (const ConfigError& error) {
      return error.what();
    }
    const size_t ranks = schedule_.graph.num_ranks();
    if (schedule_.ranks.size() != ranks) {
      return fmt::format("the stages lie on {} ranks, ops are listed for {}", ranks,
                         schedule_.ranks.size());
    }
    const size_t micro_batches = std::max(schedule_.micro_batches, 0);
    if (micro_batches == 0) return "the step has no micro-batches; give one at least";
    if (auto problem = AheadProblem()) return problem;
    for (const auto* table : {&schedule_.work.runs, &schedule_.work.sends}) {
      const auto fits = [&](const std::vector<bool>& row) { return row.size() == micro_batches; };
      if (table->empty()) continue;
      if (table->size() != schedule_.graph.stages.size() ||
          !std::all_of(table->begin(), table->end(), fits)) {
        return fmt::format("the step's work is not given for {} stages of {} micro-batches each",
                           schedule_.graph.num_stages(), micro_batches);
      }
    }
    return std::nullopt;
  }

  Problem AheadProblem() const {
    const RunAhead& ahead = schedule_.ahead;
    if (ahead.next < 0 || schedule_.own() < 1) {
      return fmt::format("{} of its {} micro-batches are of the next step; one at least is its own",
                         ahead.next, schedule_.micro_batches);
    }
    const auto problem = [&](const PassesAhead& passes, int most, const char* whose) -> Problem {
      for (const std::vector<int>* counts : {&passes.forwards, &passes.backwards}) {
        const auto fits = [most](int count) { return 0 <= count && count <= most; };
        const bool all_fit = std::all_of(counts->begin(), counts->end(), fits);
        if (counts->empty() || (all_fit && counts->size() == schedule_.graph.stages.size()))
          continue;
        return fmt::format("passes of {} that run ahead are not given for {} stages, 0 to {} each",
                           whose, schedule_.graph.num_stages(), most);
      }
      return std::nullopt;
    };
    if (auto before = problem(ahead.before, schedule_.own(), "this step")) return before;
    return problem(ahead.after, ahead.next, "the next step");
  }

  Problem MembershipProblem(const OpPlace& place) const {
    const Op& op = OpAt(place);
    const int stages = schedule_.graph.num_stages();
    if (op.stage < 0 || op.stage >= stages) {
      return fmt::format("there is no stage {}; the last is {}", op.stage, stages - 1);
    }
    if (op.micro_batch < 0 || op.micro_batch >= schedule_.micro_batches) {
      return fmt::format("there is no micro-batch {}; the last is {}", op.micro_batch,
                         schedule_.micro_batches - 1);
    }
    const bool after_transfer =
        place.position > 0 && IsTransfer(OpAt({place.rank, place.position - 1}).kind);
    if (op.joined && !(IsTransfer(op.kind) && after_transfer)) {
      return "only a transfer can be joined to the transfer before it";
    }
    if (IsTransfer(op.kind) ? op.peer < 0 : op.peer != -1) {
      return "send and receive, and no other, have a peer";
    }
    if (op.peer >= stages)
      return fmt::format("there is no stage {}; the last is {}", op.peer, stages - 1);
    const bool around = Is(op, {OpKind::kGather, OpKind::kFree});
    if (around ? !IsCompute(op.pass) : op.pass != OpKind::kForward) {
      return "GATHER and FREE, and no other, stand around a pass";
    }
    const bool whole_step = Is(op, {OpKind::kReduce, OpKind::kOptimizer});
    if (whole_step && op.micro_batch != 0) return "it belongs to no micro-batch; give it 0";
    if (op.kind == OpKind::kOptimizer) {
      return op.stage == 0 ? Problem() : "it belongs to no stage; give it 0";
    }
    if (StageOf(op).rank != place.rank) {
      return fmt::format("stage {} is on rank {}", op.stage, StageOf(op).rank);
    }
    return IsCompute(op.kind) ? ComputeProblem(op) : ReduceProblem(op);
  }

  Problem ReduceProblem(const Op& op) const {
    if (op.kind != OpKind::kReduce || StageOf(op).needs_weight_gradient) return std::nullopt;
    return fmt::format("stage {} has no trainable weights to reduce", op.stage);
  }

  Problem ComputeProblem(const Op& op) const {
    const bool encoder = Is(op, {OpKind::kEncoderForward, OpKind::kEncoderBackward});
    if (encoder != StageOf(op).encoder) {
      return fmt::format(
          "stage {}{}", op.stage,
          encoder ? " is no encoder, it has no V and U" : " is an encoder, its passes are V and U");
    }
    if (!schedule_.work.Runs(op.stage, op.micro_batch)) {
      return fmt::format("stage {} has nothing to do for micro-batch {}", op.stage, op.micro_batch);
    }
    if (!IsForward(op.kind) && !schedule_.graph.HasBackward(op.stage)) {
      return fmt::format("stage {} is frozen, with all before it: it has no backward", op.stage);
    }
    if (op.kind == OpKind::kWeightGradient && !StageOf(op).needs_weight_gradient) {
      return fmt::format("stage {} is frozen and has no weight gradient", op.stage);
    }
    const bool here = IsForward(op.kind) ? RunsForward(schedule_, op.stage, op.micro_batch)
                                         : RunsBackward(schedule_, op.stage, op.micro_batch);
    if (here) return std::nullopt;
    return fmt::format("it runs in the step {}",
                       op.micro_batch < schedule_.own() ? "before" : "after");
  }

  std::optional<ScheduleFault> FindDouble() const {
    const auto faults = [&](const OpPlace& place) -> Problem {
      const Op& op = OpAt(place);
      std::vector<Op> same = {op};
      if (op.kind == OpKind::kBackward) {
        same.push_back(WithKind(op, OpKind::kInputGradient));
        same.push_back(WithKind(op, OpKind::kWeightGradient));
      }
      for (const Op& other : same) {
        for (const OpPlace& listed : index_->Places(place.rank, other)) {
          if (listed == place || (other.kind == op.kind && listed > place)) continue;
          return other.kind == op.kind
                     ? fmt::format("listed twice, at op {} already", listed.position)
                     : fmt::format("{} at op {} does part of it already", ToString(other),
                                   listed.position);
        }
      }
      return std::nullopt;
    };
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      for (size_t p = 0; p < schedule_.ranks[r].size(); ++p) {
        const OpPlace place{static_cast<int>(r), static_cast<int>(p)};
        if (auto problem = faults(place)) return FaultAt(schedule_, place, *problem);
      }
    }
    return std::nullopt;
  }

  // The compute ops that a stage must list for a micro-batch, producers first: I and W in place of
  // B where the list has either.
  std::vector<Op> WantedOps(int rank, int stage, int micro_batch) const {
    const StageNode& node = schedule_.graph.stages[stage];
    const Op op{OpKind::kForward, stage, micro_batch};
    std::vector<Op> wanted;
    if (RunsForward(schedule_, stage, micro_batch))
      wanted.push_back(WithKind(op, node.encoder ? OpKind::kEncoderForward : op.kind));
    if (!RunsBackward(schedule_, stage, micro_batch)) return wanted;
    const Op input = WithKind(op, OpKind::kInputGradient);
    const Op weight = WithKind(op, OpKind::kWeightGradient);
    if (node.encoder) {
      wanted.push_back(WithKind(op, OpKind::kEncoderBackward));
    } else if (index_->Has(rank, input) || index_->Has(rank, weight)) {
      wanted.push_back(input);
      if (node.needs_weight_gradient) wanted.push_back(weight);
    } else {
      wanted.push_back(WithKind(op, OpKind::kBackward));
    }
    return wanted;
  }

  std::optional<ScheduleFault> FindMissingCompute() const {
    const int stages = schedule_.graph.num_stages();
    for (int stage = 0; stage < stages; ++stage) {
      const int rank = schedule_.graph.stages[stage].rank;
      for (int m = 0; m < schedule_.micro_batches; ++m) {
        if (!schedule_.work.Runs(stage, m)) continue;
        for (const Op& op : WantedOps(rank, stage, m)) {
          if (!index_->Has(rank, op)) return MissingCompute(rank, op);
        }
      }
    }
    return std::nullopt;
  }

  ScheduleFault MissingCompute(int rank, const Op& op) const {
    const std::vector<Op>& list = schedule_.ranks[rank];
    const auto follows = [&](const Op& other) {
      if (other.kind == OpKind::kOptimizer) return true;
      if (other.stage != op.stage) return false;
      if (other.kind == OpKind::kReduce) return true;
      const bool later_pass = IsCompute(other.kind) && !IsForward(other.kind) && IsForward(op.kind);
      return (other.kind == op.kind && other.micro_batch > op.micro_batch) ||
             (later_pass && other.micro_batch >= op.micro_batch);
    };
    const auto place = std::find_if(list.begin(), list.end(), follows) - list.begin();
    return FaultAt(schedule_, {rank, static_cast<int>(place)},
                   fmt::format("{} is missing before this", ToString(op)));
  }

  // An op that is listed before one of its producers on the same rank.
  Problem OrderProblem(const OpPlace& place) const {
    const Op& op = OpAt(place);
    for (const int number : dependencies_->ProducersOf(dependencies_->Number(place))) {
      const OpPlace made = dependencies_->PlaceOf(number);
      if (made.rank != place.rank || made.position < place.position) continue;
      const std::string first = ToString(OpAt(made));
      if (op.kind == OpKind::kWeightGradient) {
        return fmt::format("weight gradient before its input gradient {}", first);
      }
      if (op.kind == OpKind::kReduce)
        return fmt::format("reduces before {} adds its gradient", first);
      if (op.kind == OpKind::kOptimizer)
        return fmt::format("before {}; the optimizer is last", first);
      if (IsCompute(op.kind) && !IsForward(op.kind) && IsForward(OpAt(made).kind)) {
        return fmt::format("backward before its forward {}", first);
      }
      return fmt::format("before {}, whose result it takes", first);
    }
    return std::nullopt;
  }

  // A forward, input gradient or weight gradient of a stage that is listed after one of a later
  // micro-batch: losses and gradients have to add up in one order.
  std::optional<ScheduleFault> FindDescent() const {
    using Pass = std::pair<bool (*)(OpKind), const char*>;
    const std::array<Pass, 3> passes = {{{IsForward, "forwards"},
                                         {MakesInputGradient, "backwards"},
                                         {MakesWeightGradient, "weight gradients"}}};
    for (const auto& [belongs, name] : passes) {
      std::vector<int> last(schedule_.graph.num_stages(), -1);
      std::vector<Op> before(schedule_.graph.num_stages());
      for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
        for (size_t p = 0; p < schedule_.ranks[r].size(); ++p) {
          const Op& op = schedule_.ranks[r][p];
          if (!belongs(op.kind)) continue;
          if (op.micro_batch < last[op.stage]) {
            return FaultAt(schedule_, {static_cast<int>(r), static_cast<int>(p)},
                           fmt::format("comes after {}; the {} of a stage ascend",
                                       ToString(before[op.stage]), name));
          }
          last[op.stage] = op.micro_batch;
          before[op.stage] = op;
        }
      }
    }
    return std::nullopt;
  }

  std::optional<ScheduleFault> FindReductionFault() const {
    bool any_reduce = false, any_optimizer = false;
    for (const std::vector<Op>& list : schedule_.ranks) {
      for (const Op& op : list) {
        any_reduce = any_reduce || op.kind == OpKind::kReduce;
        any_optimizer = any_optimizer || op.kind == OpKind::kOptimizer;
      }
    }
    for (int r = 0; r < static_cast<int>(schedule_.ranks.size()); ++r) {
      if (any_reduce) {
        if (auto fault = ReduceFaultOf(r)) return fault;
      }
      if (!any_optimizer) continue;
      const std::vector<Op>& list = schedule_.ranks[r];
      const int end = static_cast<int>(list.size());
      const auto op = std::find_if(list.begin(), list.end(),
                                   [](const Op& o) { return o.kind == OpKind::kOptimizer; });
      const int position = static_cast<int>(op - list.begin());
      if (op == list.end()) return FaultAt(schedule_, {r, end}, "OPT is missing");
      if (position < end - 1) return FaultAt(schedule_, {r, position}, "the optimizer is not last");
    }
    return std::nullopt;
  }

  std::optional<ScheduleFault> ReduceFaultOf(int rank) const {
    const std::vector<Op>& list = schedule_.ranks[rank];
    const std::vector<int> stages = schedule_.graph.StagesOf(rank);
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      const Op reduce{OpKind::kReduce, *stage};
      if (!schedule_.graph.stages[*stage].needs_weight_gradient) continue;
      if (index_->Has(rank, reduce)) continue;
      const int end = static_cast<int>(list.size());
      const bool steps = end > 0 && list.back().kind == OpKind::kOptimizer;
      return FaultAt(schedule_, {rank, steps ? end - 1 : end},
                     fmt::format("{} is missing", ToString(reduce)));
    }
    int last = schedule_.graph.num_stages();
    for (size_t p = 0; p < list.size(); ++p) {
      if (list[p].kind != OpKind::kReduce) continue;
      if (list[p].stage > last) {
        return FaultAt(
            schedule_, {rank, static_cast<int>(p)},
            fmt::format(
                "comes after {}; reductions of a rank descend, so that all data ranks agree",
                ToString({OpKind::kReduce, last})));
      }
      last = list[p].stage;
    }
    return std::nullopt;
  }

  std::optional<ScheduleFault> FindDeadlock() const {
    const std::vector<OpPlace> stuck = StuckWithBlockingTransfers(schedule_);
    if (stuck.empty()) return std::nullopt;
    bool always = false;
    try {
      Simulate(schedule_, {});
    } catch (const ConfigError&) {
      always = true;
    }
    std::string others;
    constexpr size_t kNamed = 4;
    for (size_t i = 1; i < std::min(stuck.size(), kNamed); ++i) {
      others += fmt::format("{}{} stands at op {} ({})", i > 1 ? ", rank " : "; rank ",
                            stuck[i].rank, stuck[i].position, ToString(OpAt(stuck[i])));
    }
    return FaultAt(
        schedule_, stuck.front(),
        fmt::format("{}{}", always ? "can never run" : "can never run where transfers block",
                    others));
  }

  const Schedule& schedule_;
  std::optional<OpIndex> index_;
  std::optional<Dependencies> dependencies_;
};

}  // namespace

std::optional<ScheduleFault> FindFault(const Schedule& schedule) {
  return FaultFinder(schedule).Find();
}

void Validate(const Schedule& schedule, const std::string& where) {
  if (const auto fault = FindFault(schedule)) {
    throw ConfigError(
        fmt::format("{}: {}\n{}", where, fault->message, GridAround(schedule, fault->place)));
  }
}

}  // namespace equipoise
