#include "trainer/outputs/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace equipoise {
namespace {

constexpr size_t kNameLength = 120;

struct Total {
  std::string name;
  int64_t launches = 0;
  int64_t own_ns = 0;
};

struct Lane {
  int64_t number = 0;
  int64_t busy_ns = 0;
  int64_t idle_ns = 0;
};

// By lane and start; what lies around another comes before it.
std::vector<const TracedWork*> InOrder(const std::vector<TracedWork>& work) {
  std::vector<const TracedWork*> order;
  for (const TracedWork& one : work) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(), [](const TracedWork* a, const TracedWork* b) {
    return std::tuple(a->lane, a->start_ns, -a->end_ns) <
           std::tuple(b->lane, b->start_ns, -b->end_ns);
  });
  return order;
}

std::vector<Total> Totals(const std::vector<const TracedWork*>& order) {
  std::map<std::string, Total> by_name;
  std::vector<const TracedWork*> around;  // of the work at hand, the innermost last
  for (const TracedWork* one : order) {
    const auto holds = [one](const TracedWork* outer) {
      return outer->lane == one->lane && one->end_ns <= outer->end_ns;
    };
    while (!around.empty() && !holds(around.back())) around.pop_back();
    const int64_t ns = one->end_ns - one->start_ns;
    if (!around.empty()) by_name[around.back()->name].own_ns -= ns;
    Total& total = by_name[one->name];
    ++total.launches;
    total.own_ns += ns;
    around.push_back(one);
  }
  std::vector<Total> totals;
  for (auto& [name, total] : by_name) {
    total.name = name;
    totals.push_back(std::move(total));
  }
  std::stable_sort(totals.begin(), totals.end(),
                   [](const Total& a, const Total& b) { return a.own_ns > b.own_ns; });
  return totals;
}

Lane FullestLane(const std::vector<const TracedWork*>& order) {
  Lane fullest;
  for (size_t i = 0; i < order.size();) {
    Lane lane = {.number = order[i]->lane};
    int64_t end = order[i]->start_ns;
    for (; i < order.size() && order[i]->lane == lane.number; ++i) {
      const TracedWork& one = *order[i];
      lane.idle_ns += std::max<int64_t>(one.start_ns - end, 0);
      lane.busy_ns += std::max<int64_t>(one.end_ns - std::max(one.start_ns, end), 0);
      end = std::max(end, one.end_ns);
    }
    if (lane.busy_ns >= fullest.busy_ns) fullest = lane;
  }
  return fullest;
}

}  // namespace

TracedKind KernelKind() { return {"CUDA kernels", "stream"}; }
TracedKind OperatorKind() { return {"operators", "thread"}; }

std::string KernelTable(const std::vector<TracedWork>& work, int64_t steps,
                        const TracedKind& kind) {
  const std::vector<const TracedWork*> order = InOrder(work);
  if (order.empty()) return fmt::format("no {}\n", kind.work);
  const std::vector<Total> totals = Totals(order);
  int64_t all_ns = 0;
  for (const Total& total : totals) all_ns += total.own_ns;
  const auto ms = [steps](int64_t ns) {
    return static_cast<double>(ns) / 1e6 / static_cast<double>(std::max<int64_t>(steps, 1));
  };
  std::string text = fmt::format("launches     ms/step   share %  {}\n", kind.work);
  for (const Total& total : totals) {
    const double share =
        all_ns > 0 ? 100 * static_cast<double>(total.own_ns) / static_cast<double>(all_ns) : 0;
    text += fmt::format("{:8} {:11.3f} {:9.2f}  {}\n", total.launches, ms(total.own_ns), share,
                        total.name.substr(0, kNameLength));
  }
  const Lane lane = FullestLane(order);
  text += fmt::format("busy {:.3f} ms per step, idle {:.3f} ms per step: {} {}, first to last\n",
                      ms(lane.busy_ns), ms(lane.idle_ns), kind.lane, lane.number);
  return text;
}

}  // namespace equipoise
