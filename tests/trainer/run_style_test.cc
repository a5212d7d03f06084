#include "trainer/settings/run_style.h"

#include <catch2/catch.hpp>
#include <string>

#include "configs/base/error.h"
#include "configs/yaml/yaml_reader.h"
#include "trainer/settings/fp8.h"
#include "trainer/settings/run_config.h"

namespace equipoise {
namespace {

RunStyle StyleOfYaml(const std::string& train) {
  RunConfig config;
  ReadConfigText("c.yaml", "train: {" + train + "}", {}, config);
  return StyleOf(config.train, /*context=*/1);
}

std::string ErrorOf(const std::string& train) {
  try {
    StyleOfYaml(train);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("train.offload names what lies on the host", "[trainer][cpu]") {
  CHECK_FALSE(StyleOfYaml("offload: [optimizer]").offloads_activations);
  CHECK(StyleOfYaml("offload: [activations]").offloads_activations);
  using enum OffloadedState;
  CHECK(OffloadedOf({}) == ShardedState::kNone);
  CHECK(OffloadedOf({kActivations}) == ShardedState::kNone);
  CHECK(OffloadedOf({kActivations, kOptimizer}) == ShardedState::kOptimizer);
  CHECK(OffloadedOf({kGradients, kOptimizer}) == ShardedState::kGradients);
  CHECK(OffloadedOf({kOptimizer, kGradients, kParameters}) == ShardedState::kParameters);
  const auto refused = [](const auto& call, const std::string& says) {
    CHECK_THROWS_WITH(call(), Catch::Matchers::StartsWith(says));
  };
  refused([] { return OffloadedOf({kGradients}); },
          "train.offload: gradients lie in host memory only with optimizer; add optimizer");
  refused(
      [] {
        return OffloadedOf({kOptimizer, kParameters});
      },
      "train.offload: parameters lie in host memory only with gradients; add gradients");
  // They come layer by layer, as ZeRO shares them out.
  CHECK_FALSE(ZeroFor({kOptimizer}, std::nullopt));
  CHECK(ZeroFor({kOptimizer}, 0) == ShardedState::kNone);
  CHECK(ZeroFor({kOptimizer, kGradients}, std::nullopt) == ShardedState::kGradients);
  CHECK(ZeroFor({kOptimizer, kGradients}, 3) == ShardedState::kParameters);
  CHECK(ZeroFor({kOptimizer, kGradients, kParameters}, std::nullopt) == ShardedState::kParameters);
  refused(
      [] {
        return ZeroFor({kOptimizer, kGradients}, 1);
      },
      "parallel.zero: 1 keeps gradients whole");
  refused(
      [] {
        return ZeroFor({kOptimizer, kGradients, kParameters}, 2);
      },
      "parallel.zero: 2 keeps parameters whole");
}

TEST_CASE("train.master says whether there are masters", "[trainer][cpu]") {
  CHECK_FALSE(StyleOfYaml("").without_masters);
  CHECK_FALSE(StyleOfYaml("master: fp32").without_masters);
  CHECK(StyleOfYaml("master: none").without_masters);
  CHECK(ErrorOf("master: bf16").starts_with("c.yaml:1:"));
}

TEST_CASE("plans are priced with the attention that train.attention takes", "[trainer][cpu]") {
  CHECK(StyleOfYaml("").attention == AttentionKernel::kFlash);
  CHECK(StyleOfYaml("").cudnn_tiles);
  CHECK_FALSE(StyleOfYaml("deterministic: true").cudnn_tiles);
  CHECK_FALSE(StyleOfYaml("attention: flash").cudnn_tiles);
  CHECK(StyleOfYaml("attention: cudnn_tiles").attention == AttentionKernel::kFlash);
  CHECK(StyleOfYaml("attention: cudnn_tiles").cudnn_tiles);
}

TEST_CASE("train.fp8 needs bf16, and devices with fp8 units", "[trainer][cpu]") {
  CHECK_FALSE(StyleOfYaml("").fp8);
  CHECK(StyleOfYaml("fp8: true").fp8);
  RunConfig config;
  CheckFp8(config, Precision::kFp32);
  config.train.fp8 = true;
  config.cluster.preset = "h100-80g";
  CheckFp8(config, Precision::kBf16);
  CHECK_THROWS_WITH(CheckFp8(config, Precision::kFp16),
                    Catch::Matchers::StartsWith("train.fp8: true rounds the factors of bf16"));
  config.cluster.preset = "a100-80g";
  CHECK_THROWS_WITH(CheckFp8(config, Precision::kBf16),
                    Catch::Matchers::StartsWith("train.fp8: true needs GPUs with fp8 units") &&
                        Catch::Matchers::Contains("cluster.preset is a100-80g"));
}

TEST_CASE("what is not known is refused where it stands", "[trainer][cpu]") {
  CHECK(ErrorOf("offload: [optimiser]").find("optimizer") != std::string::npos);
  CHECK(ErrorOf("offload: [optimiser]").starts_with("c.yaml:1:"));
}

}  // namespace
}  // namespace equipoise
