#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "balance/costs/cluster.h"
#include "balance/costs/half_time.h"
#include "balance/costs/profile.h"
#include "balance/costs/profile_fit.h"
#include "balance/costs/program.h"
#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"

namespace equipoise {

// LayerTimes with the seconds of recomputation.
struct LayerSeconds {
  LayerTimes times;
  // By Recompute, with what copies to and from host memory take longer than the layer's passes.
  std::array<double, kRecomputeKinds> recompute_s = {};
};

// Times, memory and FLOPs of a model's layers on a device of a cluster, by arithmetic alone: no
// device, no LibTorch. From a profile where one is given, else from FLOPs, bytes and the constants
// of the cluster (docs/cost_model.md). Sizes are those of one tensor-parallel rank. Thread-safe.
class CostModel {
 public:
  struct Options {
    int tensor = 1;                   // tensor-parallel ranks
    int64_t element_bytes = 2;        // of weights and activations in the computation
    std::vector<std::string> frozen;  // components, as in model.freeze
    RunStyle style = {};
    // The first so many layers, an encoder's, have other tensor-parallel ranks than the rest.
    int encoder_layers = 0, encoder_tensor = 1;
  };
  // The tensor-parallel ranks of a plan's layers, the other options as given.
  static Options OptionsOf(const Plan& plan, Options options);
  // `measured` is not kept. Throws ConfigError when it lacks a layer of the model.
  CostModel(const ModelConfig& config, const Cluster& cluster, const Options& options,
            const Profile* measured = nullptr);

  const std::vector<LayerSpec>& specs() const { return specs_; }
  int num_layers() const { return static_cast<int>(specs_.size()); }
  // The cluster, with the profile's links where one is given.
  const Cluster& cluster() const { return cluster_; }
  const Options& options() const { return options_; }
  // Whether a plan has that state in host memory: a CPU's lies there in any case.
  bool Offloads(const Plan& plan, ShardedState state) const {
    return plan.IsOffloaded(state) && cluster_.multiprocessors > 0;
  }
  // Whether activations may lie in host memory.
  bool offloads_activations() const {
    return options_.style.offloads_activations && cluster_.multiprocessors > 0;
  }
  // Groups of layers that cost the same: of equal kind, and all trained or none.
  int num_groups() const { return static_cast<int>(groups_.size()); }
  // The share of the tensor ranks of a pipeline rank that a layer keeps: copies of an encoder with
  // fewer of them run beside each other.
  double ShareOfRank(int layer) const {
    return static_cast<double>(TensorOf(layer)) / options_.tensor;
  }
  // A layer as it is on one tensor-parallel rank.
  const LayerSpec& Work(int layer) const { return At(layer).work; }
  // Whether layers are on as many tensor-parallel ranks as in a plan.
  bool Fits(const Plan& plan) const;
  int GroupOf(int layer) const { return group_of_[static_cast<size_t>(layer)]; }

  // Seconds of a layer, with the collectives of tensor-parallel ranks. A frozen layer has no weight
  // gradient, and no input gradient either where no layer before it is trained. The head computes
  // its gradients with the loss: those that it computes are in its forward time.
  LayerTimes Times(int layer, const LayerLoad& load) const;
  // Seconds of recomputation in backward; 0 where there is no backward.
  double RecomputeSeconds(int layer, const LayerLoad& load, Recompute recompute) const;
  // Times() and RecomputeSeconds() of every kind, in the time of one call.
  LayerSeconds Seconds(int layer, const LayerLoad& load) const;
  // Bytes saved from forward to backward, including the layer's input but not its output.
  int64_t KeptBytes(int layer, const LayerLoad& load, Recompute recompute) const;
  // Bytes that lie in the host memory of a GPU from forward to backward.
  int64_t HostBytes(int layer, const LayerLoad& load, Recompute recompute) const;
  // Peak bytes of temporaries while a pass through the layer runs.
  int64_t WorkBytes(int layer, const LayerLoad& load) const;
  // Bytes of a layer's output on this rank.
  int64_t BoundaryBytes(int layer, const LayerLoad& load) const;
  // Parameters of a layer on this rank, those of them that are trained, and the bytes of all.
  int64_t Parameters(int layer) const { return At(layer).parameters; }
  int64_t TrainedParameters(int layer) const { return At(layer).trained_parameters; }
  int64_t ParameterBytes(int layer) const { return At(layer).parameter_bytes; }
  // Without those that are packed, which each rank has whole.
  int64_t SharedBytes(int layer) const { return At(layer).shared_bytes; }
  // Parameters of the weight that embedding and head share; 0: not tied. The head's stage has a
  // copy where the embedding is in another stage. Parameters() counts it in the embedding only.
  int64_t tied_parameters() const { return tied_parameters_; }
  // Whether that weight is trained.
  bool tied_trained() const {
    return tied_parameters_ > 0 && groups_.back().trainable && MayTrain(specs_.back().tied.role);
  }
  bool Trainable(int layer) const;
  // Whether the layer has a backward pass: it is trained, or a layer before it is.
  bool HasBackward(int layer) const;

  // One standard deviation of predicted times, as a share of them.
  double error_band() const { return error_band_; }
  // Measured seconds of AdamW; 0: not measured.
  double optimizer_s_per_parameter() const { return optimizer_s_per_parameter_; }

 private:
  struct Group {
    LayerSpec work;  // on one tensor-parallel rank
    int tensor = 1;  // of so many
    bool trainable = true, has_backward = true;
    int64_t trained_whole = 0;  // trained parameters, of all tensor ranks
    // Those of `work` on its largest rank: a search asks for them millions of times.
    int64_t parameters = 0, trained_parameters = 0, parameter_bytes = 0, shared_bytes = 0;
    // Fit to the profile: to the layer on tensor-parallel ranks with their all-reduces, where it
    // was measured so; else to the whole layer, from which the analytic model gives the rank's
    // share and the all-reduces.
    LayerFit fit;
    LayerSpec measured;  // the layer that `fit` is of
    bool fit_has_sums = false;
  };
  // The recomputation that a layer does where `asked` is set for it.
  static Recompute DoneOf(Recompute asked, const LayerSpec& work);
  const Group& At(int layer) const { return groups_[static_cast<size_t>(GroupOf(layer))]; }
  // Times of the halves of a layer, without collectives.
  struct Halves {
    HalfTimes attention, mlp;
  };
  // The part of a micro-batch that one of the context ranks has.
  LayerLoad Shared(LayerLoad load) const;
  // Ranks that share out the rows of what a layer takes, or gives; or of all between its products.
  int RowShares(const ActivationSpec& rows) const;
  int RowShares(const LayerSpec& work) const {
    return std::min(RowShares(work.input), RowShares(work.output));
  }
  // Whether exchanges of rows take the place of sums.
  bool ExchangesRows() const;
  // Seconds of sums, or what takes their place, that do not run beside `products_s` seconds of
  // products.
  double SumSeconds(const std::vector<TensorAllReduce>& sums, const std::vector<PerRow>& exchanges,
                    const LayerLoad& load, int tensor, double products_s) const;
  // Seconds that copies of so many bytes to host memory and back take longer than the passes.
  double CopiesBeyond(const LayerTimes& times, int64_t bytes) const;
  // `row_shares`: ranks that share out the rows between products, or that are kept.
  // `tensor`: ranks that share out the weights.
  Halves HalvesOf(const LayerSpec& work, const LayerLoad& load, int row_shares, int tensor) const;
  void AddSums(const Group& group, const HalfCost& half, const HalfTimes& alone,
               const LayerLoad& load, LayerTimes* times) const;
  LayerTimes TrainedTimes(const Group& group, const Halves& halves, const LayerLoad& load) const;
  // Elements kept of a half, without its scores.
  double KeptElements(const HalfCost& half, bool trainable, const LayerLoad& load, int row_shares,
                      bool elementwise) const;
  // Elements of gathered rows that are temporary.
  double GatheredElements(const LayerSpec& work, const LayerLoad& load) const;
  double AnalyticWorkBytes(const Group& group, const LayerSpec& work, bool trainable,
                           const LayerLoad& load, double gathered) const;
  double ElementwiseSeconds(const LayerSpec& work, const LayerLoad& load) const;
  double AnalyticKeptBytes(const LayerSpec& work, bool trainable, const LayerLoad& load,
                           Recompute recompute, int row_shares) const;
  void Fit(const Profile& measured);
  int TensorOf(int layer) const {
    return layer < options_.encoder_layers ? options_.encoder_tensor : options_.tensor;
  }

  Cluster cluster_;
  Options options_;
  LinkModel tensor_link_, encoder_link_, context_link_;
  std::vector<LayerSpec> specs_;
  std::vector<int> group_of_;
  std::vector<Group> groups_;
  int64_t tied_parameters_ = 0;
  double error_band_, optimizer_s_per_parameter_ = 0;
};

}  // namespace equipoise
