// Predicts configurations from a profile of its ranks and runs them. Measuring the layers and
// running the cases take turns, so that both see the same machine, whose speed changes by the
// second. Started by scripts/bench/simulator and simulator_bench_test; rank 0 prints a JSON object
// a line: the profile's fits, then the cases.
//
//   simulator_bench PRESET ROUNDS TOKENS TILES [EVERY [PRECISION]]
//
// EVERY: only each so manieth case. PRECISION: fp32 or bf16.

#include <ATen/Parallel.h>

#include <cstdio>
#include <set>
#include <string>

#include "balance/costs/profile_fit.h"
#include "configs/base/json.h"
#include "models/families/presets.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi_environment.h"
#include "tests/bench/simulator_bench.h"
#include "trainer/device/memory_stats.h"
#include "trainer/profile/profile_run.h"
#include "trainer/settings/precision.h"

namespace equipoise::testing {
namespace {

void PrintFits(const Profile& profile) {
  std::set<std::string> known;
  for (const LayerMeasurement& layer : profile.layers) {
    if (!known.insert(layer.layer_kind).second) continue;
    const LayerFit fit = FitLayer(profile, layer.layer_kind, layer.shape);
    const Json line = {{"layer", layer.layer_kind},
                       {"measurements", fit.measurements},
                       {"residual", fit.residual}};
    std::printf("%s\n", line.dump().c_str());
  }
}

void Bench(char** argv, int every, Precision precision, Communicator& world) {
  BenchSettings settings;
  settings.model = PresetConfig(argv[1]);
  settings.precision = precision;
  settings.rounds = std::stoi(argv[2]);
  settings.tokens = std::stoi(argv[3]);
  settings.tiles = std::stoi(argv[4]);
  const ProfileGrid grid{settings.tokens, 2 * settings.tiles};
  std::vector<BenchCase> cases;
  const std::vector<BenchCase> all = BenchCases(settings);
  for (size_t i = 0; i < all.size(); i += static_cast<size_t>(every)) cases.push_back(all[i]);
  std::vector<BenchRun> runs(cases.size());
  std::vector<Profile> profiles;
  for (int round = 0; round < settings.rounds; ++round) {
    profiles.push_back(
        MeasureProfile(settings.model, grid, {ThisDevice(precision), precision, 1}, world));
    for (size_t i = 0; i < cases.size(); ++i) RunBenchCase(settings, cases[i], world, runs[i]);
  }
  const Profile profile = MeanProfile(profiles);
  if (world.rank() == 0) PrintFits(profile);
  for (size_t i = 0; i < cases.size(); ++i) {
    const BenchResult result = CompareBenchCase(settings, cases[i], runs[i], profile, world);
    if (world.rank() != 0) continue;
    const Json line = {{"case", cases[i].name},
                       {"step_s", result.step_s},
                       {"step_s_p10", result.step_s_p10},
                       {"step_s_p90", result.step_s_p90},
                       {"predicted_step_s", result.predicted_step_s},
                       {"busy_s", result.busy_s},
                       {"predicted_busy_s", result.predicted_busy_s},
                       {"peak_bytes", result.peak_bytes},
                       {"predicted_peak_bytes", result.predicted_peak_bytes}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace equipoise::testing

// NOLINTNEXTLINE(bugprone-exception-escape): a bench ends with its message
int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s PRESET ROUNDS TOKENS TILES [EVERY [PRECISION]]\n", argv[0]);
    return 2;
  }
  equipoise::CountCpuMemory();
  equipoise::MpiEnvironment mpi;
  at::set_num_threads(1);
  {
    const auto world = equipoise::MakeWorldCommunicator(mpi, equipoise::CommOptions());
    const equipoise::Precision precision = equipoise::ParsePrecision(argc > 6 ? argv[6] : "fp32");
    equipoise::testing::Bench(argv, argc > 5 ? std::stoi(argv[5]) : 1, precision, *world);
    equipoise::Barrier(*world);
  }
  mpi.Close();
  return 0;
}
