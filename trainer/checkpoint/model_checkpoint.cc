#include "trainer/checkpoint/model_checkpoint.h"

#include <ATen/core/Tensor.h>

namespace equipoise {

std::map<std::string, HeldPiece> TensorsToSave(const ZeroOptimizer& optimizer) {
  std::map<std::string, HeldPiece> tensors;
  for (const ZeroOptimizer::State& state : optimizer.ToSave()) {
    const TensorPiece piece = PieceOf(*state.parameter, state.runs);
    // Tensors that are not sharded keep their shape, so that other programs can read them.
    const std::vector<int64_t> shape =
        piece.runs.empty() ? state.parameter->shape : state.values.sizes();
    const auto values = [values = state.values, shape] { return values.Get().view(shape); };
    tensors.emplace(state.name, HeldPiece({shape, state.values.dtype(), values}, piece));
  }
  return tensors;
}

void ReadModel(const std::string& checkpoint_dir, const CheckpointIndex& index,
               FlatParameters& parameters, ZeroOptimizer& optimizer) {
  parameters.SetWeights([&](const std::vector<Parameter*>& some) {
    CheckpointTargets weights;
    for (const Parameter* p : some) {
      if (p->role == ParameterRole::kBase) continue;
      weights.emplace_back(p->name, HeldPiece(p->stored(), PieceOf(*p)));
    }
    ReadCheckpointTensors(checkpoint_dir, index, weights);
  });
  optimizer.TakeMasters();
  optimizer.ReadMoments([&](const std::vector<ZeroOptimizer::State>& some) {
    CheckpointTargets moments;
    for (const ZeroOptimizer::State& state : some) {
      moments.emplace_back(state.name,
                           HeldPiece(state.values, PieceOf(*state.parameter, state.runs)));
    }
    ReadCheckpointTensors(checkpoint_dir, index, moments);
  });
  optimizer.set_steps(index.state.optimizer_step);
}

}  // namespace equipoise
