#include "trainer/settings/fp8.h"

#include <fmt/format.h>

#include "balance/costs/cluster.h"
#include "configs/base/error.h"

namespace equipoise {

void CheckFp8(const RunConfig& config, Precision precision) {
  if (!config.train.fp8) return;
  if (precision != Precision::kBf16) {
    throw ConfigError(fmt::format(
        "train.fp8: true rounds the factors of bf16 products, and this run computes in {}; set "
        "train.precision to bf16, or leave train.fp8 out",
        ToString(precision)));
  }
  const Cluster cluster = MakeCluster(config.cluster);
  if (cluster.fp8_speedup > 0) return;
  throw ConfigError(
      fmt::format("train.fp8: true needs GPUs with fp8 units, such as h100-80g, h200 or b200, and "
                  "cluster.preset "
                  "is {}; leave it out there",
                  config.cluster.preset));
}

}  // namespace equipoise
