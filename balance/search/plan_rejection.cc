#include "balance/search/plan_rejection.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace equipoise {
namespace {

// The memory of a device in which the rank's bytes fit; the reserve grows with it.
int64_t MemoryThatHolds(const MemoryForecast& memory, const Cluster& cluster) {
  const auto needed = static_cast<double>(memory.total() - memory.reserve);
  return static_cast<int64_t>(std::ceil(needed / (1 - cluster.reserve_share)));
}

}  // namespace

std::string GiB(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
}

RejectedPlan TooLarge(const PlanRequest& request, Plan plan, const OutOfMemoryRank& misfit) {
  const int64_t room = request.cluster.memory_bytes;
  return {std::move(plan),
          fmt::format("pipeline rank {} needs {} of {}", misfit.pipeline_rank,
                      GiB(misfit.memory.total()), GiB(room)),
          MemoryThatHolds(misfit.memory, request.cluster) - room};
}

RejectedPlan TooLargeForHost(const PlanRequest& request, Plan plan, int64_t bytes) {
  RejectedPlan rejected;
  rejected.plan = std::move(plan);
  rejected.reason = fmt::format("offloaded state needs {} of the {} of a node's host memory",
                                GiB(bytes), GiB(request.cluster.host.bytes));
  rejected.host_bytes = bytes;
  return rejected;
}

}  // namespace equipoise
