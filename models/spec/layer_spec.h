#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/spec/layer_cost.h"
#include "models/spec/layer_load.h"
#include "models/spec/tensor_spec.h"

namespace equipoise {

// The parts of a model, each of which is frozen, placed and given a learning rate as a whole.
enum class Component { kEncoder, kConnector, kLanguageModel };

// Kinds of a language model's layers (LayerSpec::kind).
inline constexpr char kTokenEmbedding[] = "token_embedding";
inline constexpr char kDecoderBlock[] = "decoder_block";
inline constexpr char kHead[] = "head";

// Name of a component in model.freeze and other settings: "vision", "projector" or "llm".
const char* ComponentName(Component component);

// Kinds of rows of an activation.
enum class RowKind { kPatches, kImageTokens, kTokens };

// The input or output of a layer: [rows, width], or [tiles, rows_per_tile, width] in an encoder
// that computes on whole tiles.
struct ActivationSpec {
  RowKind rows = RowKind::kTokens;
  int64_t width = 0;
  int64_t rows_per_tile = 0;  // 0: rows are not grouped by tile
  bool shared = false;        // sequence parallelism: each tensor rank has some of the rows
  // Features of the encoder that travel on to later layers (DeepStack), behind the rows: each has
  // as many rows as the pictures have patches in an encoder, and image tokens behind it. They are
  // whole on every tensor rank.
  int64_t features = 0;

  // Rows for a micro-batch, features included; with `ranks` that share out rows, of each rank.
  int64_t Rows(const LayerLoad& load, int ranks = 1) const;
  int64_t Elements(const LayerLoad& load) const { return Rows(load) * width; }
  // The shape for a micro-batch; empty where there are no elements. With `ranks` that share out
  // rows, that of each rank's: [Rows(load, ranks), width].
  std::vector<int64_t> Shape(const LayerLoad& load, int ranks = 1) const;
};

// A linear layer among a layer's parameters: NAME.weight [out, in] and, in some, NAME.bias.
struct LinearSpec {
  std::string suffix;  // of its name
  int group = 0;       // equal for linears that share their input, and are one product
  bool row = false;    // split by its inputs
};

// The one description of a layer, which everything reads that plans, partitions, measures,
// initializes, loads, saves or freezes it. LibTorch-free. A model family lists the layers of its
// models (models/families); models/layers and the family compute them.
struct LayerSpec {
  std::string kind;   // such as "decoder_block": with `shape`, what a profile calls the layer
  std::string title;  // such as "decoder blocks", for plans
  // The dimensions that its cost depends on, such as "hidden 3200, inner 12800, heads 25": equal
  // for layers of a kind that cost the same, of whatever model.
  std::string shape;
  std::string name;   // prefix of its parameters' names
  int64_t index = 0;  // among the model's layers of this kind
  Component component = Component::kLanguageModel;

  // Parameters in the order of use. Every parameter belongs to one layer.
  std::vector<TensorSpec> parameters;
  std::vector<LinearSpec> linear_layers;
  // Of the adapters among the parameters (models/spec/lora.h).
  double adapter_scale = 0, adapter_dropout = 0;
  // A weight of another layer that this one uses too (a tied head: the embedding's). Empty name:
  // none.
  TensorSpec tied;

  ActivationSpec input, output;  // width 0: none (an encoder reads pictures, the head gives a loss)
  HalfCost attention, mlp;       // on one of the tensor-parallel ranks; whole on one rank
  bool has_halves = false;       // whether one half alone can be recomputed
  bool needs_input_gradient = true;  // false: the input is data
  bool gradient_with_loss = false;   // the head: forward computes the gradients too
  bool defers_weights = true;        // whether W, the weight gradients, can run later than B
  // Whether the features that travel with the rows (ActivationSpec::features) are part of the
  // layer's input and output; else they pass by it.
  bool takes_features = false;
  // Weights that nothing computes with: never trained, but loaded, saved and exported. The layer's
  // output is its input.
  bool unused = false;
  // Trained, all of it or the parameters whose role says so, although its component is frozen
  // (ModelConfig::unfreeze).
  bool unfrozen = false;

  int64_t parameter_count() const;  // of the whole layer
  int64_t LargestPart(int tensor_ranks) const;
  // Of parameters that are trained unless their component is frozen: of all, on the rank that has
  // the most.
  int64_t trained_count() const { return LargestTrained(1); }
  int64_t LargestTrained(int tensor_ranks) const;
  // Bytes of all parameters on that rank.
  int64_t LargestBytes(int tensor_ranks, int64_t element_bytes) const;
  bool split() const;  // whether tensor-parallel ranks share any parameter
  // Whether the layer has anything to do for a micro-batch.
  bool Runs(const LayerLoad& load) const {
    return component == Component::kLanguageModel ? load.tokens > 0 : load.patches > 0;
  }

  // FLOPs of matrix products, two for a multiply-add; norms and activations are left out.
  double ForwardFlops(const LayerLoad& load) const;
  // Input and weight gradients, the latter of what is trained, nothing in a frozen layer: as much
  // as forward each. Causal attention recomputes its scores: 2.5 times.
  double BackwardFlops(const LayerLoad& load, bool trained = true) const;
  // Bytes of the output, which is sent when the next layer is on another rank.
  int64_t BoundaryBytes(const LayerLoad& load, int64_t element_bytes) const {
    return output.Elements(load) * element_bytes;
  }

  // AddX() append to `parameters`; a parameter's name is the layer's, a dot and `suffix`.
  void AddTensor(const std::string& suffix, std::vector<int64_t> shape, const Init& init);
  // NAME.weight of ones and, with `bias`, NAME.bias of zeros. `split` as AddLinear's `out`.
  void AddNorm(const std::string& suffix, int64_t size, bool bias, const Split& split = {});
  // Linears that share their input: NAME.weight [out, in] of each, then, with `bias`, NAME.bias
  // [out] of each.
  void AddColumnLinears(const std::vector<std::pair<std::string, Split>>& linears, int64_t in,
                        bool bias, double deviation);
  // NAME.weight [out, in], split by its inputs, and, with `bias`, NAME.bias [out].
  void AddRowLinear(const std::string& suffix, const Split& in, int64_t out, bool bias,
                    double deviation);
};

// Whether `components`, such as model.freeze, names the layer's component.
bool IsAmong(const LayerSpec& spec, const std::vector<std::string>& components);
// Whether a parameter of the layer is trained, given the frozen components (model.freeze).
bool IsTrained(const LayerSpec& spec, const std::vector<std::string>& frozen);

}  // namespace equipoise
