// Published, measured steps through the model of costs and the simulator. Started by
// scripts/bench/published, which prints the tables; here a JSON object a line.
//
//   published_runs ROWS.json...

#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "balance/search/plan_forecast.h"
#include "configs/base/error.h"
#include "tests/bench/published_runs.h"

namespace equipoise::testing {
namespace {

void Print(const PublishedRun& run) {
  const RunForecast forecast = ForecastRun(run);
  const double off = kTenthPercentile * forecast.error_band;
  const Json line = {{"id", run.id},
                     {"table", run.table},
                     {"attention", run.attention},
                     {"schedule", run.plan.schedule},
                     {"measured_s", run.measured_s},
                     {"predicted_s", forecast.step_s},
                     {"p10_s", forecast.step_s * (1 - off)},
                     {"p90_s", forecast.step_s * (1 + off)},
                     {"mfu", forecast.mfu},
                     {"measured_mfu", forecast.measured_mfu},
                     {"peak_gib", static_cast<double>(forecast.peak_bytes) / (1 << 30)},
                     {"memory_gib", static_cast<double>(forecast.memory_bytes) / (1 << 30)}};
  std::printf("%s\n", line.dump().c_str());
}

// What a row does not say of its program is as in the first row of its table.
void CompleteRow(std::map<std::string, Json>& tables, Json& row) {
  const auto [first, is_first] = tables.try_emplace(row.at("table").get<std::string>(), row);
  if (is_first) return;
  for (const char* key : {"attention", "reduce_overlap", "inter_gb_s"}) {
    if (!row.contains(key) && first->second.contains(key)) row[key] = first->second[key];
  }
}

int Main(int argc, char** argv) {
  std::map<std::string, Json> tables;
  for (int i = 1; i < argc; ++i) {
    Json file = ReadJsonFile(argv[i]);
    for (Json& row : file.at("rows")) {
      CompleteRow(tables, row);
      Print(ReadPublishedRun(row, argv[i]));
    }
  }
  return 0;
}

}  // namespace
}  // namespace equipoise::testing

int main(int argc, char** argv) {
  try {
    return equipoise::testing::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "published_runs: %s\n", error.what());
    return 2;
  }
}
