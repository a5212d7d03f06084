#include "trainer/run/islands.h"

#include <vector>

#include "parallel/comm/values.h"
#include "trainer/settings/diloco.h"

namespace equipoise {

Islands::Islands(const RunConfig& config, Communicator& world)
    : world_(world), count_(static_cast<int>(config.train.diloco.islands)) {
  const int ranks = RanksOfIsland(config, world.size());
  if (count_ == 1) return;
  const int number = world.rank() / ranks, place = world.rank() % ranks;
  mine_ = world.Split(number, place, "island");
  peers_ = world.Split(place, number, "islands");
}

// Each island's value is added once, to zeros, so that the sum depends on no rank's number.
double Islands::Mean(double value) const {
  if (count_ == 1) return value;
  std::vector<double> values(static_cast<size_t>(count_));
  if (mine_->rank() == 0) values[static_cast<size_t>(number())] = value;
  double sum = 0;
  for (const double each : AllReduceValues(world_, values, ReduceOp::kSum)) sum += each;
  return sum / count_;
}

}  // namespace equipoise
