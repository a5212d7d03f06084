#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "parallel/comm/communicator.h"
#include "parallel/encoder_placement.h"
#include "parallel/parameter.h"
#include "parallel/plan.h"

namespace equipoise::testing {

// One cell of the parity matrix: a model, a set of micro-batches, and a way to spread both over
// ranks, which are threads here.
struct Cell {
  std::string model = "internvl-qwen2";  // see CellModel
  std::string modality = "mixed";        // mixed | balanced | text | pictures | blank | random SEED
  int data = 1, pipeline = 1, tensor = 1, context = 1;
  EncoderPlacement encoder = EncoderPlacement::kInline;
  int encoder_ranks = 1, encoder_chunks = 1;  // unless it is inline; as in Plan
  int encoder_tensor = 0;                     // of a copy in the bubbles; 0: as `tensor`
  std::string schedule = "1f1b";
  int chunks = 0;                  // stages a rank; 0: the fewest that the schedule takes
  int zero = 0, zero_ranks = 0;    // as in Plan
  bool sequence = false;           // tensor ranks share out the rows too
  int micro_batches = 4;           // over all data ranks
  std::vector<int> stage_begins;   // empty: as even as can be
  std::string precision = "fp32";  // or bf16, fp16; the last with a scaled loss
  bool fp8 = false;                // linear layers of blocks, beside bf16
  std::vector<std::string> freeze, unfreeze;  // as in the section `model`
  // By layer: none | vision+llm, llm (these modules whole) | attention | mlp | random SEED
  std::string recompute = "none";
  int steps = 3;  // of AdamW, on the same batches
  // Each step begins with the micro-batch after that with which the one before began, so that none
  // is encoded where the step before has its features.
  bool turning = false;
  bool prefetch = false;        // a frozen encoder in the bubbles runs a step ahead
  bool encoder_stream = false;  // on GPUs, its passes have a stream of their own
  // First weights moved by about a rounding of fp32: how far such a run is from one without is how
  // far rounding alone takes it.
  bool nudged = false;
  ShardedState offloaded = ShardedState::kNone;  // as in Plan
  int64_t bucket_bytes = 4096;

  int ranks() const { return data * pipeline * context * tensor; }
};

// "internvl-qwen2 mixed data 2 pipeline 2 tensor 1 1f1b M 4 fp32"
std::string ToString(const Cell& cell);

// internvl-qwen2 (InternViT-300M form), internvl-llama (6B form: RMSNorm, QK norm), internvl-qwen3,
// internvl-internlm2, llava-llama, llava_next-llama, llava_onevision-qwen2, qwen2_vl (tied),
// qwen2_5_vl, qwen3_vl, qwen2, llama, qwen2-tied; with "+lora", "+dora", "+dropout", "+int8" or
// "+vocabulary" adapters of that kind on all linear layers, "+int8" over quantised ones,
// "+vocabulary" beside an embedding that is trained in full.
ModelConfig CellModel(const std::string& name);

// The model with what the cell freezes and unfreezes.
ModelConfig ModelOf(const Cell& cell);

Plan CellPlan(const Cell& cell, const ModelConfig& config);
// First layers of `stages` of which the first holds the encoder and all layers that get something
// of pictures.
std::vector<int> StagesWithPicturesFirst(const std::string& model, int stages);
// The same model, batches and frozen modules in one process, without recomputation.
Cell InOneProcess(Cell cell);
// The same in one process as many times as there are data, context and tensor ranks: no pipeline,
// no ZeRO, no recomputation, the encoder inline.
Cell WithoutPipeline(Cell cell);

// Sets this rank's part of the weights of the first step; they depend on their names alone.
void SetWeights(FlatParameters& parameters, bool nudged = false);

struct CellResult {
  double loss = 0;  // before the first step
  // Whole tensors by Hugging Face name, assembled from the parts' owners; zeros where frozen.
  std::map<std::string, at::Tensor> gradients;
  // Masters after all steps; loss and gradient norm before each.
  std::map<std::string, at::Tensor> weights;
  std::vector<double> losses, norms;
  int taken = 0;  // micro-batches of a data rank whose features came from the step before
  // Whether what all tensor ranks hold has the same bits on each of them, after all steps, and what
  // several ranks hold the same shard of.
  bool copies_agree = true;
};

// Where ranks compute, and their communicators for tensors there.
struct CellDevices {
  std::function<at::Device(int rank)> device = [](int) { return at::Device(at::kCPU); };
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> wrap =
      [](std::unique_ptr<Communicator> world) { return world; };
};

// Folders of checkpoints: one to begin from, one to leave at the end. Empty: none.
struct CellFolders {
  std::string load, save;
};

// Weights and batches depend on model, modality and number of micro-batches alone.
CellResult RunCell(const Cell& cell, const CellDevices& devices = {},
                   const CellFolders& folders = {});

// RunCell(), once for all cells that compare with it.
const CellResult& Known(const Cell& cell);

// Runs one rank of a cell, where ranks are no threads. Collective over `world`, which has
// cell.ranks() ranks. Gives what this rank contributes: over all ranks everything comes once, a
// tensor is zero, or absent, where another rank contributes. Norms are those of all ranks.
CellResult RunRank(const Cell& cell, Communicator& world);

// The gradient of the ViT's key biases: softmax does not see what is added to all scores of a row.
// What is computed is rounding alone, which AdamW blows up to whole steps.
bool IsZeroInExactArithmetic(const std::string& name);

// What `name` begins with, of this shape.
at::Tensor FirstWeight(const std::string& name, const std::vector<int64_t>& shape);

// Whether `weight` is `first`, or that rounded to 16 bits, as frozen weights are held.
bool IsFrozenAt(const at::Tensor& first, const at::Tensor& weight);

// How far the steps of `a` went from those of `b`: |a - b| beside the way of b, |b - FirstWeight|.
// Weights that have not moved at all are at 1, whatever their size, and opposite ways at 2. Without
// those whose gradient is zero in exact arithmetic, and frozen ones, which differ by the rounding
// of what they began with. 1e30 for NaN.
struct MoveError {
  double worst = 0;  // of all tensors; of those that move next to nothing, beside 1e-6 of all moves
  double whole = 0;  // over all of them
  // Apart from `worst`, that of the decoder's key biases. Softmax sees of them only what rotary
  // embeddings turn apart, so that rounding to 16 bits may decide which way AdamW takes them.
  double key_biases = 0;
};
MoveError CompareMoves(const std::map<std::string, at::Tensor>& a,
                       const std::map<std::string, at::Tensor>& b);

// |a - b| / max(|b|, 1e-6 * norm of all of b), the worst of all tensors (docs/design.md, parity);
// those that are zero in exact arithmetic are held against 0.05 of the norm of all. 1e30 for NaN.
double WorstError(const std::map<std::string, at::Tensor>& a,
                  const std::map<std::string, at::Tensor>& b);
bool SameBits(const CellResult& a, const CellResult& b);
// The first gradient of the language model in `b` whose bits `a` has not; empty: it has all, and
// there are more than 10.
std::string OtherTextBits(const CellResult& a, const CellResult& b);

// How far two ways to run the same steps are apart, relative to the second, or may be.
struct CellErrors {
  double loss = 0;       // of the first step
  double losses = 0;     // of all of them
  double gradients = 0;  // WorstError
  double norms = 0;      // of the gradients, before each step
  MoveError moves;       // of the weights

  bool Within(const CellErrors& bounds) const;
};
CellErrors Compare(const CellResult& result, const CellResult& expected);
// Measured (docs/parity.md), and rounded up: of a cell beside one process, and beside one on
// another kind of device. A mesh that trains less fails them: all moves are then 1 from those of
// one process.
CellErrors BoundsOf(const Cell& cell, bool other_device = false);
// Whether errors beside `one`, the cell in one process, are within its bounds, or where tensor or
// context ranks round their partial sums, within what rounding does to that process: in 16 bits
// twice what it is from fp32, and in fp32, of random data alone, which may meet gradients that are
// next to nothing, what it is from itself with weights moved by a rounding.
bool WithinRounding(const Cell& cell, const CellErrors& errors, const CellResult& one);
// Of each kind the larger of the bound and `factor` times what was measured.
CellErrors AtLeast(const CellErrors& bounds, const CellErrors& measured, double factor);
// "loss 1.0e-07, gradients 2.0e-06, ..."
std::string ToString(const CellErrors& errors);
// The same behind the cell, as scripts/parity reads it.
std::string Row(const Cell& cell, const CellErrors& errors, bool same_bits);

}  // namespace equipoise::testing
