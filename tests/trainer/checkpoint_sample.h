#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

// Behind LibTorch, which has a CHECK of its own; tests get Catch2 through this header.
#include <catch2/catch.hpp>
#include <string>

#include "parallel/comm/single_communicator.h"
#include "trainer/checkpoint/checkpoint.h"

namespace equipoise {

// A small checkpoint whose every number follows from (step, rank).
inline CheckpointContent SampleContent(int64_t step, int rank, int64_t numel = 1000) {
  CheckpointContent content;
  content.state = {step, {2, 3 * step}, step - 1, 4 * step, 5 * step, 6 * step, 7, 1, {}};
  content.environment = {{"data", 2}, {"cpu", "some"}};
  content.sections = {{"model", {{"hf", "a"}}}, {"data", {{"max_tokens", 64}}}};
  content.settings = {{"train", {{"lr", 1e-4}, {"steps", 100}}}};
  const std::string name = "layer." + std::to_string(rank) + ".weight";
  const double value = static_cast<double>(step) + rank / 8.0;
  content.tensors.emplace(name, at::full({numel / 4, 4}, value, at::kFloat));
  content.tensors.emplace("exp_avg." + name, at::full({numel / 4, 4}, -value, at::kFloat));
  return content;
}

// Whether the checkpoint holds SampleContent of its step for `ranks` ranks.
inline bool HoldsSample(const std::string& folder, int ranks, int64_t numel = 1000) {
  const CheckpointIndex index = ReadCheckpointIndex(folder, /*verify=*/true);
  for (int rank = 0; rank < ranks; ++rank) {
    const CheckpointContent expected = SampleContent(index.state.step, rank, numel);
    CheckpointTargets found;
    for (const auto& [name, held] : expected.tensors) {
      found.emplace_back(name, at::zeros(held.values.sizes(), at::kFloat));
    }
    ReadCheckpointTensors(folder, index, found);
    for (const auto& [name, held] : found) {
      if (!held.values.Get().equal(expected.tensors.at(name).values.Get())) return false;
    }
  }
  return true;
}

inline void SaveSample(const std::string& run_dir, int64_t step, int64_t keep) {
  SingleCommunicator world;
  SaveCheckpoint(run_dir, SampleContent(step, 0), keep, world);
}

}  // namespace equipoise
