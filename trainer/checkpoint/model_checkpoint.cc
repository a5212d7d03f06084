#include "trainer/checkpoint/model_checkpoint.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <vector>

namespace equipoise {
namespace {

constexpr const char* kOuterMomentum = "outer_momentum.";
constexpr const char* kPrevious = "previous.";

using State = ZeroOptimizer::State;

// What stands in front of the name of a tensor that is an island's own.
std::string IslandPrefix(int number) { return fmt::format("island-{}.", number); }

void Add(const State& state, const std::string& prefix, std::map<std::string, HeldPiece>& tensors) {
  const TensorPiece piece = PieceOf(*state.parameter, state.runs);
  // Tensors that are not sharded keep their shape, so that other programs can read them.
  const std::vector<int64_t> shape =
      piece.runs.empty() ? state.parameter->shape : state.values.sizes();
  const auto values = [values = state.values, shape] { return values.Get().view(shape); };
  tensors.emplace(prefix + state.name, HeldPiece({shape, state.values.dtype(), values}, piece));
}

// Reads states from tensors of that name behind `prefix`.
void Read(const std::string& checkpoint_dir, const CheckpointIndex& index,
          const std::vector<State>& states, const std::string& prefix = "") {
  CheckpointTargets targets;
  for (const State& state : states) {
    targets.emplace_back(prefix + state.name,
                         HeldPiece(state.values, PieceOf(*state.parameter, state.runs)));
  }
  ReadCheckpointTensors(checkpoint_dir, index, targets);
}

bool Has(const CheckpointIndex& index, const std::string& prefix) {
  const auto first = index.tensors.lower_bound(prefix);
  return first != index.tensors.end() && first->first.starts_with(prefix);
}

// Where a checkpoint is within a round, it has weights of each island.
bool IsWithinRound(const CheckpointIndex& index, const std::vector<State>& weights,
                   const std::string& island) {
  return !weights.empty() && index.tensors.count(island + weights.front().name) > 0;
}

}  // namespace

std::map<std::string, HeldPiece> TensorsToSave(const ZeroOptimizer& optimizer,
                                               const IslandModel* island) {
  std::map<std::string, HeldPiece> tensors;
  const std::string own =
      island != nullptr && island->number > 0 ? IslandPrefix(island->number) : std::string();
  for (const State& state : optimizer.ToSave()) {
    const bool is_weight = state.name == state.parameter->name;
    if (island == nullptr) {
      Add(state, "", tensors);
    } else if (!is_weight) {
      Add(state, own, tensors);
    } else if (!state.parameter->trainable) {
      if (island->number == 0) Add(state, "", tensors);
    } else if (island->within_round) {
      Add(state, IslandPrefix(island->number), tensors);
    }
  }
  if (island == nullptr || island->number > 0) return tensors;
  const auto add_outer = [&](const std::string& prefix, const at::Tensor& of) {
    if (!of.defined()) return;
    for (const State& state : optimizer.StatesOf(prefix, of, /*to_save=*/true))
      Add(state, "", tensors);
  };
  add_outer("", island->outer.weights());
  add_outer(kOuterMomentum, island->outer.momentum());
  return tensors;
}

void ReadModel(const std::string& checkpoint_dir, const CheckpointIndex& index,
               FlatParameters& parameters, ZeroOptimizer& optimizer, const IslandModel* island) {
  parameters.SetWeights([&](const std::vector<Parameter*>& some) {
    CheckpointTargets weights;
    for (const Parameter* p : some) {
      if (p->role == ParameterRole::kBase) continue;
      weights.emplace_back(p->name, HeldPiece(p->stored(), PieceOf(*p)));
    }
    ReadCheckpointTensors(checkpoint_dir, index, weights);
  });
  optimizer.TakeMasters();
  const std::string own =
      island != nullptr && island->number > 0 ? IslandPrefix(island->number) : std::string();
  optimizer.ReadMoments(
      [&](const std::vector<State>& some) { Read(checkpoint_dir, index, some, own); });
  optimizer.set_steps(index.state.optimizer_step);
}

void AddPreviousWeights(const ZeroOptimizer& optimizer, const WeightVersions& versions,
                        std::map<std::string, HeldPiece>& tensors) {
  if (!versions.previous().defined()) return;
  for (const State& state : optimizer.StatesOfValues(kPrevious, versions.previous()))
    Add(state, "", tensors);
}

void ReadPreviousWeights(const std::string& checkpoint_dir, const CheckpointIndex& index,
                         const FlatParameters& parameters, WeightVersions& versions) {
  versions.CopyNewest();
  if (!Has(index, kPrevious)) return;
  CheckpointTargets weights;
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    const Parameter* p = parameters.parameters()[i];
    if (p->trainable)
      weights.emplace_back(kPrevious + p->name, HeldPiece(versions.PreviousOf(i), PieceOf(*p)));
  }
  ReadCheckpointTensors(checkpoint_dir, index, weights);
}

at::Tensor ReadRound(const std::string& checkpoint_dir, const CheckpointIndex& index,
                     const ZeroOptimizer& optimizer, const IslandModel& island) {
  OuterOptimizer& outer = island.outer;
  outer.Begin();
  const auto parts = [&](const at::Tensor& of, const std::string& prefix = "") {
    return optimizer.StatesOf(prefix, of, /*to_save=*/false);
  };
  const std::vector<State> weights = parts(outer.weights());
  Read(checkpoint_dir, index, weights);
  // Absent where the run had no momentum so far.
  if (outer.momentum().defined() && Has(index, kOuterMomentum))
    Read(checkpoint_dir, index, parts(outer.momentum(), kOuterMomentum));
  const std::string own = IslandPrefix(island.number);
  if (!IsWithinRound(index, weights, own)) return outer.weights();
  at::Tensor model = at::zeros({optimizer.share_numel()}, at::kFloat);
  Read(checkpoint_dir, index, parts(model), own);
  return model;
}

}  // namespace equipoise
