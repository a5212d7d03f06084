#include "parallel/pipeline/plan_agreement.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>

#include "configs/base/error.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/values.h"

namespace equipoise {
namespace {

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

void RequireSamePlan(const StepFingerprint& mine, Communicator& world) {
  if (world.size() == 1) return;
  StableHash schedule;
  AddTo(schedule, *mine.schedule);
  const std::vector<int64_t> words = {static_cast<int64_t>(mine.hash),
                                      static_cast<int64_t>(schedule.value()), mine.data_rank};
  std::vector<uint64_t> shared, schedules;
  std::vector<int> everyone, data_ranks;
  for (const std::vector<int64_t>& rank : GatherValues(world, words)) {
    shared.push_back(static_cast<uint64_t>(rank[0]));
    schedules.push_back(static_cast<uint64_t>(rank[1]));
    data_ranks.push_back(static_cast<int>(rank[2]));
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
