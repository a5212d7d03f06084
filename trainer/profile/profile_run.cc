#include "trainer/profile/profile_run.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <torch/version.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "models/families/families.h"
#include "models/spec/tensor_parallel.h"
#include "parallel/comm/gather_text.h"
#include "parallel/device.h"
#include "parallel/host_copies.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/compute_dtype.h"

namespace equipoise {
namespace {

constexpr int kGridPoints = 4;                              // sizes measured per layer kind
constexpr int64_t kPackedSegments = 4;                      // segments of a packed row
constexpr int64_t kSmallBytes = 64, kLargeBytes = 8 << 20;  // messages that are timed
constexpr int kTransfers = 20;                              // repetitions of a message
constexpr int64_t kHostBytes = 64 << 20;                    // of a copy to the host, and back

// The largest size, its half, its quarter, ..., at most kGridPoints of them and none below 1.
std::vector<int64_t> Halves(int64_t largest) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < kGridPoints && largest > 0; ++i, largest /= 2) sizes.push_back(largest);
  return sizes;
}

// Median seconds of a collective operation, after a warm-up.
double MedianSeconds(Communicator& group, const std::function<void()>& operation) {
  std::vector<double> seconds;
  for (int i = -1; i < kTransfers; ++i) {
    Barrier(group);
    const auto start = Work::Clock::now();
    operation();
    if (i >= 0)
      seconds.push_back(std::chrono::duration<double>(Work::Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kTransfers / 2, seconds.end());
  return seconds[kTransfers / 2];
}

// The latency-bandwidth model that passes through the times of both message sizes.
LinkModel LinkThrough(double small_s, double large_s) {
  const double bytes = static_cast<double>(kLargeBytes - kSmallBytes);
  return {small_s, bytes / std::max(1e-9, large_s - small_s)};
}

// Seconds of a message between the two ranks of a group: half a round trip.
double OneWaySeconds(Communicator& pair, at::Tensor buffer) {
  const int peer = 1 - pair.rank();
  return MedianSeconds(pair,
                       [&] {
                         if (pair.rank() == 0) pair.Send(buffer, peer).Wait();
                         pair.Recv(buffer, peer).Wait();
                         if (pair.rank() == 1) pair.Send(buffer, peer).Wait();
                       }) /
         2;
}

double AllReduceSeconds(Communicator& pair, at::Tensor buffer) {
  return MedianSeconds(pair, [&] { pair.AllReduce(buffer, ReduceOp::kSum).Wait(); });
}

void MeasureLinks(Communicator& world, at::Device device, Profile& profile) {
  if (world.size() < 2) return;
  const auto buffer = [&](int64_t bytes) {
    return at::zeros({bytes / 4}, at::TensorOptions(device).dtype(at::kFloat));
  };
  const bool measures = world.rank() < 2;
  const auto pair = world.Split(measures ? 0 : 1, world.rank(), "profile");
  if (measures) {
    const at::Tensor small = buffer(kSmallBytes), large = buffer(kLargeBytes);
    pair->Connect({{0, 1}});
    profile.point_to_point = LinkThrough(OneWaySeconds(*pair, small), OneWaySeconds(*pair, large));
    profile.all_reduce =
        LinkThrough(AllReduceSeconds(*pair, small), AllReduceSeconds(*pair, large));
  }
  Barrier(world);
}

// The slower way, as its user has both at once; all ranks copy at the same time, as their GPUs may
// share a path to the host.
void MeasureHostLink(Communicator& world, at::Device device, Profile& profile) {
  if (device.is_cpu()) return;
  const at::Tensor there = at::zeros({kHostBytes}, at::TensorOptions(device).dtype(at::kByte));
  const at::Tensor here = PinnedMemory(kHostBytes, at::kByte);
  const auto seconds = [&](const at::Tensor& from, at::Tensor to) {
    return MedianSeconds(world, [&] {
      to.copy_(from, /*non_blocking=*/true);
      Synchronize(device);
    });
  };
  const double slower_s = std::max(seconds(there, here), seconds(here, there));
  profile.host_link_bytes_per_s = static_cast<double>(kHostBytes) / std::max(1e-9, slower_s);
}

// This rank's group for each degree of tensor parallelism, beginning with 1 (no group).
struct TensorGroups {
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<TensorParallel> ranks;
};

TensorGroups MakeTensorGroups(const ModelConfig& config, Communicator& world) {
  TensorGroups all;
  for (const int size : TensorDegrees(config, world.size())) {
    const int rank = world.rank() % size;
    all.groups.push_back(size == 1 ? nullptr : world.Split(world.rank() / size, rank, "tensor"));
    all.ranks.push_back({all.groups.back().get(), rank, size});
  }
  return all;
}

struct SweepRows {
  const ProfileGrid& grid;
  const std::vector<TensorParallel>& degrees;
  bool memory;  // whether memory is measured
};

// Measures every row once.
Profile MeasureSweep(const ModelConfig& config, const SweepRows& rows,
                     const MeasureOptions& options, Communicator& world) {
  Profile profile;
  profile.device = options.here.device;
  profile.versions = options.here.versions;
  profile.precision = options.here.precision;
  profile.threads = options.here.threads;
  const std::vector<LayerSpec> specs = LayerSpecs(config);
  // A kind may have several shapes, such as blocks with windows and without; each costs its own.
  std::set<std::pair<std::string, std::string>> known;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!known.emplace(specs[i].kind, specs[i].shape).second) continue;
    for (const TensorParallel& tensor : rows.degrees) {
      if (tensor.size > 1 && !specs[i].split()) continue;
      LayerMeter meter(config, static_cast<int>(i), DtypeOf(options.precision), tensor,
                       options.device);
      for (const MeasuredRow& row : RowsFor(specs[i], config, rows.grid)) {
        Barrier(world);
        profile.layers.push_back(meter.Measure(row, rows.memory));
      }
      const bool is_trained = specs[i].kind == kDecoderBlock && specs[i].trained_count() > 0;
      if (tensor.size == 1 && is_trained && profile.optimizer_s_per_parameter == 0)
        profile.optimizer_s_per_parameter = meter.OptimizerSecondsPerParameter();
    }
  }
  MeasureLinks(world, options.device, profile);
  MeasureHostLink(world, options.device, profile);
  return profile;
}

}  // namespace

ProfileUse ThisDevice(Precision precision, at::Device device) {
  return {DeviceName(device), std::string("LibTorch ") + TORCH_VERSION, ToString(precision),
          at::get_num_threads()};
}

std::vector<int> TensorDegrees(const ModelConfig& config, int ranks) {
  int64_t most = std::min<int64_t>(config.text.num_attention_heads, ranks);
  if (config.has_vision) most = std::min(most, config.vision.num_attention_heads);
  std::vector<int> degrees;
  for (int degree = 1; degree <= most; ++degree) {
    if (ranks % degree == 0) degrees.push_back(degree);
  }
  return degrees;
}

std::vector<MeasuredRow> RowsFor(const LayerSpec& spec, const ModelConfig& config,
                                 const ProfileGrid& grid) {
  std::vector<MeasuredRow> rows;
  if (spec.component != Component::kLanguageModel) {
    for (const int64_t tiles : Halves(grid.max_tiles)) rows.push_back({tiles, {}});
    return rows;
  }
  for (const int64_t tokens : Halves(grid.max_tokens)) {
    rows.push_back({0, {tokens}});
    if (spec.kind == kHead && tokens > 1) rows.push_back({0, {tokens}, tokens - tokens / 4});
    if (spec.kind == kDecoderBlock && tokens >= kPackedSegments) {
      rows.push_back({0, std::vector<int64_t>(kPackedSegments, tokens / kPackedSegments)});
    }
    if (spec.kind == kTokenEmbedding && config.has_vision) {
      const int64_t tiles = std::min(grid.max_tiles, tokens / ImageSpecOf(config).tokens_per_tile);
      if (tiles > 0) rows.push_back({tiles, {tokens}});
    }
  }
  return rows;
}

Profile MeasureProfile(const ModelConfig& config, const ProfileGrid& grid,
                       const MeasureOptions& options, Communicator& world,
                       const std::function<void(int sweep)>& progress) {
  const TensorGroups tensor = MakeTensorGroups(config, world);
  std::vector<Profile> sweeps;
  for (int i = 0; i < options.sweeps; ++i) {
    if (progress) progress(i);
    const SweepRows rows = {grid, tensor.ranks, /*memory=*/i == 0};
    sweeps.push_back(MeasureSweep(config, rows, options, world));
  }
  std::vector<Profile> ranks;
  for (const std::string& text : GatherText(world, ToJson(MeanProfile(sweeps)).dump()))
    ranks.push_back(ParseProfile(Json::parse(text), "a rank's profile"));
  return MeanProfile(ranks);
}

}  // namespace equipoise
