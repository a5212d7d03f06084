#include "parallel/pipeline/plan_agreement.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>

#include "configs/base/error.h"
#include "parallel/comm/gather_text.h"

namespace equipoise {
namespace {

constexpr int64_t kWords = 3;  // shared hash, schedule hash, data rank

// Whether ranks of `groups` (rank -> group) differ within a group.
bool Differ(const std::vector<uint64_t>& hashes, const std::vector<int>& groups) {
  std::map<int, uint64_t> first;
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    if (first.emplace(groups[rank], hashes[rank]).first->second != hashes[rank]) return true;
  }
  return false;
}

[[noreturn]] void Explain(const std::vector<PlanItem>& mine, const std::vector<int>& groups,
                          Communicator& world) {
  const std::vector<std::string> texts = GatherText(world, ToText(mine));
  std::map<int, std::vector<int>> members;
  for (size_t rank = 0; rank < groups.size(); ++rank)
    members[groups[rank]].push_back(static_cast<int>(rank));
  for (const auto& [group, ranks] : members) {
    std::vector<std::vector<PlanItem>> items;
    for (const int rank : ranks) items.push_back(ParsePlanItems(texts[static_cast<size_t>(rank)]));
    if (const auto difference = DescribeDifference(items, ranks)) {
      throw ConfigError(fmt::format(
          "the plan of this step: {}; give every rank the same configuration, data and program",
          *difference));
    }
  }
  throw ConfigError(
      "the ranks have different plans of this step; give every rank the same "
      "configuration, data and program");
}

}  // namespace

void RequireSamePlan(const PlannedStep& mine, Communicator& world) {
  if (world.size() == 1) return;
  StableHash schedule;
  AddTo(schedule, *mine.schedule);
  at::Tensor words = at::empty({kWords}, at::kLong),
             all = at::empty({world.size() * kWords}, at::kLong);
  auto* word = words.data_ptr<int64_t>();
  word[0] = static_cast<int64_t>(mine.hash);
  word[1] = static_cast<int64_t>(schedule.value());
  word[2] = mine.data_rank;
  world.AllGather(all, words).Wait();
  std::vector<uint64_t> shared, schedules;
  std::vector<int> everyone, data_ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    const int64_t* at = all.data_ptr<int64_t>() + rank * kWords;
    shared.push_back(static_cast<uint64_t>(at[0]));
    schedules.push_back(static_cast<uint64_t>(at[1]));
    data_ranks.push_back(static_cast<int>(at[2]));
    everyone.push_back(0);
  }
  if (Differ(shared, everyone))
    Explain(mine.items ? mine.items() : std::vector<PlanItem>(), everyone, world);
  if (Differ(schedules, data_ranks)) {
    Explain(PlanItems(*mine.schedule, fmt::format("schedule of data rank {}", mine.data_rank)),
            data_ranks, world);
  }
}

}  // namespace equipoise
