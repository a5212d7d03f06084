// A step's plan is derived by every rank and never sent, so ranks must prove that they agree.
// AddTo() and PlanItems() walk a schedule in the same order and cover the same values: equal hashes
// mean equal items up to a collision of 64 bits, and where hashes differ the items name the first
// difference. The hash is a chain of splitmix64 finalizers over 64-bit words, independent of
// machine, build and std::hash. O(ops).

#include "parallel/schedule/plan_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// The finalizer of splitmix64: a bijection in which every bit affects every other.
uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::string StageText(const StageNode& stage) {
  std::string text = fmt::format("on rank {}", stage.rank);
  for (int next : stage.next) text += fmt::format(", then {}", next);
  if (stage.encoder) text += ", encoder";
  if (stage.lane >= 0) text += fmt::format(" in lane {}", stage.lane);
  if (!stage.needs_input_gradient) text += ", no input gradient";
  if (!stage.needs_weight_gradient) text += ", no weight gradient";
  return text;
}

const char* WorkText(const StepWork& work, int stage, int micro_batch) {
  if (!work.Runs(stage, micro_batch)) return "idle";
  return work.Sends(stage, micro_batch) ? "runs" : "runs, sends nothing";
}

std::string MicroBatchesText(const Schedule& schedule) {
  if (schedule.ahead.next == 0) return std::to_string(schedule.micro_batches);
  return fmt::format("{}, and {} of the next step", schedule.own(), schedule.ahead.next);
}

uint64_t HashOf(const std::vector<PlanItem>& items) {
  StableHash hash;
  for (const PlanItem& item : items) {
    hash.Add(item.name);
    hash.Add(item.value);
  }
  return hash.value();
}

const PlanItem* Find(const std::vector<PlanItem>& items, const std::string& name) {
  const auto at = std::find_if(items.begin(), items.end(),
                               [&](const PlanItem& item) { return item.name == name; });
  return at == items.end() ? nullptr : &*at;
}

std::string ValueOf(const std::vector<PlanItem>& items, const std::string& name) {
  const PlanItem* item = Find(items, name);
  return item ? item->value : "nothing";
}

// The name of the first item that differs; where the names differ, of an item that only one list
// has.
std::string FirstName(const std::vector<PlanItem>& a, const std::vector<PlanItem>& b) {
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  if (i == a.size()) return b[i].name;
  return i < b.size() && Find(b, a[i].name) && !Find(a, b[i].name) ? b[i].name : a[i].name;
}

}  // namespace

void StableHash::Add(uint64_t value) { state_ = Mixed(state_ ^ value); }

void StableHash::Add(std::string_view text) {
  Add(static_cast<uint64_t>(text.size()));
  for (size_t begin = 0; begin < text.size(); begin += 8) {
    uint64_t word = 0;  // little-endian on every machine
    const std::string_view part = text.substr(begin, 8);
    for (size_t i = 0; i < part.size(); ++i) {
      word |= uint64_t{static_cast<unsigned char>(part[i])} << (8 * i);
    }
    Add(word);
  }
}

std::vector<PlanItem> PlanItems(const Schedule& schedule, const std::string& whose) {
  std::vector<PlanItem> items = {
      {fmt::format("{}, micro-batches", whose), MicroBatchesText(schedule)},
      {fmt::format("{}, stages", whose), std::to_string(schedule.graph.num_stages())}};
  for (int s = 0; s < schedule.graph.num_stages(); ++s) {
    items.push_back({fmt::format("{}, stage {}", whose, s), StageText(schedule.graph.stages[s])});
    for (int m = 0; m < schedule.micro_batches; ++m) {
      items.push_back({fmt::format("{}, stage {}, micro-batch {}", whose, s, m),
                       WorkText(schedule.work, s, m)});
    }
  }
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    for (size_t p = 0; p < schedule.ranks[r].size(); ++p) {
      const Op& op = schedule.ranks[r][p];
      items.push_back({fmt::format("{}, pipeline rank {}, op {}", whose, r, p),
                       ToString(op) + (op.joined ? " joined to the one before" : "")});
    }
    items.push_back({fmt::format("{}, pipeline rank {}, ops", whose, r),
                     std::to_string(schedule.ranks[r].size())});
  }
  return items;
}

void AddTo(StableHash& hash, const Schedule& schedule) {
  const auto add = [&hash](int64_t value) { hash.Add(static_cast<uint64_t>(value)); };
  add(schedule.micro_batches);
  add(schedule.ahead.next);
  add(schedule.graph.num_stages());
  for (int s = 0; s < schedule.graph.num_stages(); ++s) {
    const StageNode& stage = schedule.graph.stages[s];
    add(stage.rank);
    add(stage.lane);
    add(static_cast<int64_t>(stage.next.size()));
    for (int next : stage.next) add(next);
    add(stage.encoder | stage.needs_input_gradient << 1 | stage.needs_weight_gradient << 2);
    for (int m = 0; m < schedule.micro_batches; ++m) {
      add(schedule.work.Runs(s, m) | schedule.work.Sends(s, m) << 1);
    }
  }
  for (const std::vector<Op>& list : schedule.ranks) {
    add(static_cast<int64_t>(list.size()));
    for (const Op& op : list) {
      add(int64_t{op.stage} << 32 | static_cast<uint32_t>(op.micro_batch));
      add(int64_t{op.peer} << 32 | static_cast<uint32_t>(op.kind) << 1 | op.joined |
          static_cast<uint32_t>(op.pass) << 8);
    }
  }
}

std::string ToText(const std::vector<PlanItem>& items) {
  std::string text;
  for (const PlanItem& item : items) text += item.name + '\t' + item.value + '\n';
  return text;
}

std::vector<PlanItem> ParsePlanItems(std::string_view text) {
  std::vector<PlanItem> items;
  while (!text.empty()) {
    const size_t tab = text.find('\t'), end = text.find('\n');
    EQUIPOISE_CHECK(tab < end && end != std::string_view::npos, "plan items ", text.substr(0, 80));
    items.push_back(
        {std::string(text.substr(0, tab)), std::string(text.substr(tab + 1, end - tab - 1))});
    text.remove_prefix(end + 1);
  }
  return items;
}

std::optional<std::pair<int, int>> DifferingRanks(const std::vector<uint64_t>& hashes) {
  std::map<uint64_t, int> counts;
  for (uint64_t hash : hashes) ++counts[hash];
  if (counts.size() < 2) return std::nullopt;
  // The lowest rank of those with the most frequent hash, and the lowest that has another.
  int usual = 0, other = 0;
  for (int r = 0; r < static_cast<int>(hashes.size()); ++r) {
    if (counts[hashes[r]] > counts[hashes[usual]]) usual = r;
  }
  while (hashes[other] == hashes[usual]) ++other;
  return std::minmax(usual, other);
}

std::optional<std::string> DescribeDifference(const std::vector<std::vector<PlanItem>>& items,
                                              const std::vector<int>& ranks) {
  std::vector<uint64_t> hashes;
  hashes.reserve(items.size());
  for (const std::vector<PlanItem>& one : items) hashes.push_back(HashOf(one));
  const auto pair = DifferingRanks(hashes);
  if (!pair) return std::nullopt;
  const auto [a, b] = *pair;
  const std::string name = FirstName(items[a], items[b]);
  return fmt::format("rank {} and rank {} differ first in '{}': {} / {}", ranks[a], ranks[b], name,
                     ValueOf(items[a], name), ValueOf(items[b], name));
}

}  // namespace equipoise
