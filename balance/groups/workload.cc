#include "balance/groups/workload.h"

#include <numeric>

#include "balance/groups/step_assignment.h"

namespace equipoise {

std::vector<int> DealtPacks(const Workload& workload, size_t step, int data) {
  const std::vector<LayerLoad>& packs = workload.steps[step];
  if (workload.dealt_by) {
    const std::vector<int64_t> dealt = AssignRows(packs, data, *workload.dealt_by);
    return {dealt.begin(), dealt.end()};
  }
  std::vector<int> in_turn(packs.size());
  std::iota(in_turn.begin(), in_turn.end(), 0);
  return in_turn;
}

std::vector<int> PacksOfRank(const std::vector<int>& dealt, int data, int rank) {
  std::vector<int> packs;
  for (size_t i = static_cast<size_t>(rank); i < dealt.size(); i += static_cast<size_t>(data)) {
    packs.push_back(dealt[i]);
  }
  return packs;
}

}  // namespace equipoise
