#include "trainer/checkpoint/model_checkpoint.h"

#include <ATen/core/Tensor.h>

namespace equipoise {

std::map<std::string, HeldPiece> TensorsToSave(const ZeroOptimizer& optimizer) {
  std::map<std::string, HeldPiece> tensors;
  for (const ZeroOptimizer::State& mine : optimizer.ToSave()) {
    const TensorPiece piece = PieceOf(*mine.parameter, mine.runs);
    // A whole part keeps its shape, so that other programs read it too.
    const at::Tensor values =
        piece.runs.empty() ? mine.values.view(mine.parameter->shape) : mine.values;
    tensors.emplace(mine.name, HeldPiece(values.contiguous(), piece));
  }
  return tensors;
}

void ReadModel(const std::string& checkpoint_dir, const CheckpointIndex& index,
               FlatParameters& parameters, ZeroOptimizer& optimizer) {
  CheckpointTargets weights, moments;  // all weights, and this rank's share of the moments
  for (const Parameter* p : parameters.parameters()) {
    weights.emplace_back(p->name, HeldPiece(p->stored(), PieceOf(*p)));
  }
  ReadCheckpointTensors(checkpoint_dir, index, weights);
  parameters.UpdateCompute();
  optimizer.TakeMasters();
  for (const ZeroOptimizer::State& held : optimizer.Moments()) {
    moments.emplace_back(held.name, HeldPiece(held.values, PieceOf(*held.parameter, held.runs)));
  }
  ReadCheckpointTensors(checkpoint_dir, index, moments);
  optimizer.set_steps(index.state.optimizer_step);
}

}  // namespace equipoise
