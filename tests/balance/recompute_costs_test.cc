#include <catch2/catch.hpp>
#include <string>

#include "balance/costs/cost_model.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/balance/a100_layers.h"

namespace equipoise {
namespace {

TEST_CASE("recomputing a half keeps its input alone and costs its forward", "[balance][cpu]") {
  const CostModel costs(PresetConfig("internvl2-26b"), A100(), {});
  const int64_t input = 4096 * 6144 * 2;
  const int layer = Find(costs, kDecoderBlock);
  const auto kept = [&](Recompute r) { return costs.KeptBytes(layer, kLoad, r); };
  const auto seconds = [&](Recompute r) { return costs.RecomputeSeconds(layer, kLoad, r); };
  CHECK(kept(Recompute::kFull) == input);
  // What one half does not keep and what the other does not are all but the two inputs.
  CHECK(kept(Recompute::kAttention) + kept(Recompute::kMlp) == kept(Recompute::kNone) + 2 * input);
  CHECK(seconds(Recompute::kAttention) + seconds(Recompute::kMlp) ==
        Approx(seconds(Recompute::kFull)));
  CHECK(seconds(Recompute::kFull) == Approx(costs.Times(layer, kLoad).forward_s));
  CHECK(seconds(Recompute::kNone) == 0);
  const int head = costs.num_layers() - 1;
  CHECK(costs.KeptBytes(head, kLoad, Recompute::kFull) ==
        costs.KeptBytes(head, kLoad, Recompute::kNone));
}

TEST_CASE("results of norms and activation functions cost passes over memory alone",
          "[balance][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");
  const CostModel costs(model, A100(), {});
  const auto hidden = model.text.hidden_size, inner = model.text.intermediate_size;
  const int layer = Find(costs, kDecoderBlock), head = costs.num_layers() - 1;
  const auto kept = [](const CostModel& of, int at, Recompute r) {
    return of.KeptBytes(at, kLoad, r);
  };
  CHECK(kept(costs, layer, Recompute::kNone) - kept(costs, layer, Recompute::kElementwise) ==
        2 * kLoad.tokens * (2 * hidden + inner));
  const double seconds = costs.RecomputeSeconds(layer, kLoad, Recompute::kElementwise);
  CHECK(seconds > 0);
  CHECK(seconds < 0.1 * costs.RecomputeSeconds(layer, kLoad, Recompute::kMlp));
  CHECK(kept(costs, head, Recompute::kElementwise) == kept(costs, head, Recompute::kNone));
  CHECK(costs.RecomputeSeconds(head, kLoad, Recompute::kElementwise) == 0);
  // Tensor ranks have the results of norms whole, unless they share out the rows.
  CostModel::Options options;
  options.tensor = 2;
  const CostModel split(model, A100(), options);
  CHECK(kept(split, layer, Recompute::kNone) - kept(split, layer, Recompute::kElementwise) ==
        2 * kLoad.tokens * (2 * hidden + inner / 2));
  options.style.sequence_parallel = true;
  const CostModel shared(model, A100(), options);
  CHECK(kept(shared, layer, Recompute::kNone) - kept(shared, layer, Recompute::kElementwise) ==
        kLoad.tokens * (2 * hidden + inner));
  // Of frozen weights nothing is kept for their gradients.
  options = {};
  options.frozen = {"llm"};
  const CostModel frozen(model, A100(), options);
  CHECK(kept(frozen, layer, Recompute::kElementwise) == kept(frozen, layer, Recompute::kNone));
  CHECK(frozen.RecomputeSeconds(layer, kLoad, Recompute::kElementwise) == 0);
}

TEST_CASE("offloaded activations take host memory, and the time of copies that nothing hides",
          "[balance][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");
  const CostModel costs(model, A100(), {});
  const int layer = Find(costs, kDecoderBlock), head = costs.num_layers() - 1;
  const auto kept = [&](Recompute kind) { return costs.KeptBytes(layer, kLoad, kind); };
  const auto host = [&](Recompute kind) { return costs.HostBytes(layer, kLoad, kind); };
  const LayerSeconds seconds = costs.Seconds(layer, kLoad);
  const auto more_s = [&](Recompute kind) {
    return seconds.recompute_s[static_cast<size_t>(kind)];
  };
  CHECK(kept(Recompute::kOffload) == 0);
  CHECK(host(Recompute::kOffload) == kept(Recompute::kNone));
  const double rate = A100().host.link_bytes_per_s;
  const double copy_s = static_cast<double>(kept(Recompute::kNone)) / rate;
  CHECK(more_s(Recompute::kOffload) ==
        Approx(2 * copy_s - seconds.times.forward_s - seconds.times.backward_s()));
  // An input of a block is copied while it is computed.
  CHECK(kept(Recompute::kFullOffload) == 0);
  CHECK(host(Recompute::kFullOffload) == kept(Recompute::kFull));
  CHECK(more_s(Recompute::kFullOffload) == more_s(Recompute::kFull));
  CHECK(host(Recompute::kFull) == 0);
  CHECK(costs.KeptBytes(head, kLoad, Recompute::kOffload) ==
        costs.KeptBytes(head, kLoad, Recompute::kNone));
  // A CPU's memory is the host's.
  Cluster cpu = A100();
  cpu.multiprocessors = 0;
  const CostModel on_cpu(model, cpu, {});
  CHECK(on_cpu.KeptBytes(layer, kLoad, Recompute::kOffload) == kept(Recompute::kNone));
  CHECK(on_cpu.HostBytes(layer, kLoad, Recompute::kOffload) == 0);
}

}  // namespace
}  // namespace equipoise
