// Random changes of valid schedules: what the validator still takes computes the same, bit by bit,
// also with every transfer blocking.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/validate.h"

namespace equipoise {
namespace {

// Runs a schedule with values that say how they were made: two results are equal only if the same
// was done to the same in the same order. Ranks run in random turns; transfers block.
class SymbolicRun {
 public:
  SymbolicRun(const Schedule& schedule, std::mt19937& random)
      : schedule_(schedule), next_(schedule.ranks.size(), 0) {
    const int ranks = static_cast<int>(schedule.ranks.size());
    std::vector<int> order;
    for (int r = 0; r < ranks; ++r) order.push_back(r);
    do {
      moved_ = false;
      std::shuffle(order.begin(), order.end(), random);
      for (int r : order) Advance(r);
    } while (moved_ && !wrong_);
    for (int r = 0; r < ranks; ++r) wrong_ = wrong_ || next_[r] != schedule.ranks[r].size();
  }

  // What each stage ends with: its summed gradients, in order, and what was done with them. None
  // when an op lacked an input, or the run did not come to its end.
  std::optional<std::map<std::string, std::string>> Result() const {
    if (wrong_) return std::nullopt;
    return results_;
  }

 private:
  using Value =
      std::tuple<int, int, int, int>;  // rank where it is, from stage, to stage, micro-batch

  int RankOf(int stage) const { return schedule_.graph.stages[stage].rank; }

  // The group of transfers that the rank stands at, else its one op.
  size_t SlotEnd(int rank) const {
    const std::vector<Op>& list = schedule_.ranks[rank];
    size_t end = next_[rank] + 1;
    while (end < list.size() && list[end].joined) ++end;
    return end;
  }

  void Advance(int rank) {
    const std::vector<Op>& list = schedule_.ranks[rank];
    if (next_[rank] == list.size()) return;
    const Op& op = list[next_[rank]];
    if (!IsTransfer(op.kind)) {
      Compute(op, rank);
      ++next_[rank];
      moved_ = true;
      return;
    }
    bool all_done = true;
    for (size_t p = next_[rank]; p < SlotEnd(rank); ++p) {
      all_done = Meet(list[p], rank) && all_done;
    }
    if (!all_done) return;
    next_[rank] = SlotEnd(rank);
    moved_ = true;
  }

  // Whether the transfer is over, or both of its ends are there now, so that it is.
  bool Meet(const Op& op, int rank) {
    const bool sends = op.kind == OpKind::kSend;
    const int from = sends ? op.stage : op.peer, to = sends ? op.peer : op.stage;
    const auto key = std::tuple(from, to, op.micro_batch);
    if (moved_values_.count(key)) return true;
    const int other = RankOf(op.peer);
    const Op wanted{sends ? OpKind::kRecv : OpKind::kSend, op.peer, op.micro_batch, op.stage};
    if (other == rank || next_[other] == schedule_.ranks[other].size()) return false;
    for (size_t p = next_[other]; p < SlotEnd(other); ++p) {
      Op there = schedule_.ranks[other][p];
      there.joined = false;
      if (there != wanted) continue;
      const auto value = values_.find({RankOf(from), from, to, op.micro_batch});
      wrong_ = wrong_ || value == values_.end();
      if (wrong_) return false;
      values_[{RankOf(to), from, to, op.micro_batch}] = value->second;
      moved_values_[key] = true;
      moved_ = true;
      return true;
    }
    return false;
  }

  // What came to a compute op; an input that is not there makes the run wrong.
  std::string Inputs(const Op& op, int rank, bool forward) {
    std::string inputs;
    for (int other = 0; other < schedule_.graph.num_stages(); ++other) {
      const std::vector<int>&next = schedule_.graph.stages[op.stage].next,
            &others_next = schedule_.graph.stages[other].next;
      const bool before = std::count(others_next.begin(), others_next.end(), op.stage) > 0;
      const bool after = std::count(next.begin(), next.end(), other) > 0;
      const bool comes = forward
                             ? before && SendsRows(schedule_, other, op.stage, op.micro_batch)
                             : after && SendsGradient(schedule_, other, op.stage, op.micro_batch);
      if (!comes) continue;
      const auto value = values_.find({rank, other, op.stage, op.micro_batch});
      wrong_ = wrong_ || value == values_.end();
      if (!wrong_) inputs += value->second + ",";
    }
    return inputs;
  }

  std::string Hashed(const std::string& text) const {
    return std::to_string(std::hash<std::string>()(text));
  }

  void Compute(const Op& op, int rank) {
    const std::string stage = std::to_string(op.stage), m = std::to_string(op.micro_batch);
    const std::string own = stage + "." + m;
    if (op.kind == OpKind::kOptimizer) {
      results_["optimizer " + std::to_string(rank)] = reduced_[rank];
    } else if (op.kind == OpKind::kReduce) {
      results_["stage " + stage] += " reduced";
      reduced_[rank] += stage + "(" + Hashed(results_["stage " + stage]) + ") ";
    } else if (IsForward(op.kind)) {
      kept_[own] = Hashed("F" + own + "(" + Inputs(op, rank, true) + ")");
      results_["forwards " + stage] += kept_[own] + " ";  // losses add up in this order
      for (int to = 0; to < schedule_.graph.num_stages(); ++to) {
        values_[{rank, op.stage, to, op.micro_batch}] = kept_[own];
      }
    } else {
      if (MakesInputGradient(op.kind)) {
        wrong_ = wrong_ || !kept_.count(own);
        gradients_[own] = Hashed("B" + own + "(" + kept_[own] + Inputs(op, rank, false) + ")");
        for (int to = 0; to < op.stage; ++to) {
          values_[{rank, op.stage, to, op.micro_batch}] = gradients_[own];
        }
      }
      wrong_ = wrong_ || !gradients_.count(own);
      if (MakesWeightGradient(op.kind)) results_["stage " + stage] += gradients_[own] + " ";
    }
  }

  const Schedule& schedule_;
  std::vector<size_t> next_;
  bool moved_ = false, wrong_ = false;
  std::map<Value, std::string> values_;
  std::map<std::tuple<int, int, int>, bool> moved_values_;
  std::map<std::string, std::string> kept_, gradients_;  // by stage and micro-batch
  std::map<std::string, std::string> results_;
  std::map<int, std::string> reduced_;
};

// A change at one place, in words.
std::string Mutate(Schedule& schedule, std::mt19937& random) {
  const auto draw = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
  };
  std::vector<Op>& list = schedule.ranks[draw(schedule.ranks.size())];
  if (list.empty()) return "nothing";
  const size_t p = draw(list.size()), q = draw(list.size());
  Op& op = list[p];
  const std::string text = ToString(op) + " at " + std::to_string(p);
  const auto at = list.begin() + static_cast<int>(p);
  switch (draw(9)) {
    case 0:
      list.erase(at);
      return text + " dropped";
    case 1: {
      const Op twice = op;
      list.insert(list.begin() + static_cast<int>(q), twice);
      return text + " doubled";
    }
    case 2:
      if (p + 1 < list.size()) std::swap(list[p], list[p + 1]);
      return text + " swapped with the next";
    case 3: {
      const Op moved = op;
      list.erase(at);
      list.insert(list.begin() + static_cast<int>(std::min(q, list.size())), moved);
      return text + " moved to " + std::to_string(q);
    }
    case 4:
      op.stage = static_cast<int>(draw(schedule.graph.num_stages()));
      return text + " given another stage";
    case 5:
      op.micro_batch = static_cast<int>(draw(schedule.micro_batches));
      return text + " given another micro-batch";
    case 6:
      op.kind = static_cast<OpKind>(draw(10));
      return text + " given another kind";
    case 7:
      op.peer = static_cast<int>(draw(schedule.graph.num_stages() + 1)) - 1;
      return text + " given another peer";
    default: {
      const Op moved = op;
      list.erase(at);
      std::vector<Op>& other = schedule.ranks[draw(schedule.ranks.size())];
      other.insert(other.begin() + static_cast<int>(draw(other.size() + 1)), moved);
      return text + " moved to a rank";
    }
  }
}

std::vector<Schedule> ValidSchedules() {
  StageGraph encoder;  // an encoder and a text stage feed the stage of the loss, on three ranks
  encoder.stages = {{0, {2}, true}, {1, {2}}, {2, {}}};
  StageGraph frozen = ChainGraph({0, 1, 2});
  frozen.stages[0].needs_weight_gradient = false;
  frozen.stages[1].needs_input_gradient = false;
  StageGraph skip = ChainGraph({0, 1, 2});  // a value that passes a stage by
  skip.stages[0].next = {1, 2};
  StepWork no_picture;
  no_picture.runs = {{true, false, true}, {true, true, true}, {true, true, true}};
  std::vector<Schedule> schedules;
  const auto add = [&](const char* name, const StageGraph& graph, int m, const StepWork& work) {
    const Schedule built = BuildSchedule(name, graph, m);
    schedules.push_back(built);
    schedules.push_back(CompleteSchedule(built, work, {}));
  };
  for (const char* name : {"naive", "gpipe", "1f1b"}) {
    add(name, ChainGraph({0, 1}), 4, {});
    add(name, encoder, 3, no_picture);
    add(name, frozen, 3, {});
    add(name, skip, 2, {});
  }
  add("interleaved", ChainGraph({0, 1, 0, 1}), 4, {});
  add("zb_h1", ChainGraph({0, 1, 2}), 4, {});
  add("zb_v", ChainGraph({0, 1, 1, 0}), 4, {});
  for (Schedule& schedule : schedules) schedule = DropIdleOps(schedule, schedule.work);
  return schedules;
}

bool HasTransfers(const Schedule& schedule) {
  const auto any = [](const std::vector<Op>& list) {
    return std::any_of(list.begin(), list.end(), [](const Op& op) { return IsTransfer(op.kind); });
  };
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), any);
}

// Transfers that a schedule without any would get, so that it can be run.
Schedule Runnable(const Schedule& schedule) {
  return HasTransfers(schedule) || schedule.graph.num_ranks() == 1 ? schedule
                                                                   : AddTransfers(schedule, {});
}

TEST_CASE("what the validator takes after a change computes the same", "[validate][cpu]") {
  std::mt19937 random(11);
  int taken = 0, refused = 0;
  for (const Schedule& valid : ValidSchedules()) {
    INFO(valid.graph.num_stages() << " stages, " << valid.ranks[0].size() << " ops on rank 0");
    REQUIRE_FALSE(FindFault(valid));
    const auto wanted = SymbolicRun(Runnable(valid), random).Result();
    REQUIRE(wanted);
    for (int i = 0; i < 400; ++i) {
      Schedule changed = valid;
      INFO(Mutate(changed, random));
      if (changed == valid) continue;
      const auto fault = FindFault(changed);
      if (fault) {
        ++refused;
        CHECK(fault->message.find('\n') == std::string::npos);
        CHECK(fault->place.rank < static_cast<int>(changed.ranks.size()));
        CHECK(fault->place.position <= static_cast<int>(changed.ranks[fault->place.rank].size()));
        continue;
      }
      ++taken;
      CHECK(SymbolicRun(Runnable(changed), random).Result() == wanted);
    }
  }
  CHECK(refused > 3000);
  CHECK(taken > 50);  // some changes are harmless, and the test sees them
}

TEST_CASE("what it takes after two swaps runs with blocking transfers", "[validate][cpu]") {
  std::mt19937 random(12);
  int taken = 0, blocked = 0;
  for (const Schedule& valid : ValidSchedules()) {
    if (!HasTransfers(valid)) continue;
    const auto wanted = SymbolicRun(valid, random).Result();
    for (int i = 0; i < 1000; ++i) {
      Schedule changed = valid;
      for (int k = 0; k < 2; ++k) {
        std::vector<Op>& list = changed.ranks[random() % changed.ranks.size()];
        const size_t p = random() % (list.size() - 1);
        std::swap(list[p], list[p + 1]);
      }
      const auto fault = FindFault(changed);
      if (fault && fault->message.find("where transfers block") != std::string::npos) {
        ++blocked;
        CHECK_FALSE(SymbolicRun(changed, random).Result());
      }
      if (fault) continue;
      ++taken;
      CHECK(SymbolicRun(changed, random).Result() == wanted);
    }
  }
  CHECK(taken > 20);
  CHECK(blocked > 0);
}

}  // namespace
}  // namespace equipoise
