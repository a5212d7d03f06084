#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/ops/pixels.h"
#include "models/spec/tensor_parallel.h"
#include "models/stages/stage.h"
#include "models/stages/stage_layout.h"
#include "models/stages/weight_versions.h"
#include "parallel/parameter.h"
#include "parallel/pipeline/executor.h"
#include "parallel/zero/sharded_units.h"

namespace equipoise {

// The stages that one rank holds, as the executor runs them.
class ModelPart : public StageRunner {
 public:
  struct Options {
    at::ScalarType dtype = at::kFloat;  // of the computation
    at::Device device = at::kCPU;       // where it runs; micro-batches come on the CPU
    std::vector<std::string> freeze;    // modules without gradients
    bool inference = false;             // no parameter has a gradient
    bool fp8 = false;                   // linear layers of blocks, beside `dtype` bf16
    Sharding sharding;                  // of the state, over the ranks with the same weights
    TensorParallel tensor;              // ranks that share each layer, or its rows
    // Those that share the layers of a copy of the encoder in a lane, and this rank's lane
    // (Plan::LaneOf()).
    TensorParallel encoder_tensor = {};
    int lane = 0;
    // The encoder's passes run on a stream of their own, beside the others (Executor).
    bool encoder_stream = false;
  };
  // Builds the stages of `pipeline_rank` with the plan's recompute; their weights are not set yet.
  ModelPart(const ModelConfig& config, StageLayout plan, int pipeline_rank, const Options& options);

  // The micro-batches of one pass, and what becomes of its results.
  struct Pass {
    // Valid until `release` has been called for it, or the step that it belongs to has ended.
    std::function<const MicroBatch&(int micro_batch)> batch;
    std::vector<LayerLoad> loads;  // of each micro-batch, as planned
    // Those of the next step, if the encoder is to make their features in this one, or this one
    // runs passes of it; their numbers follow those of `loads`.
    std::vector<LayerLoad> next_loads;
    // What runs on this rank, by the executor; set by ParallelModel.
    const Schedule* schedule = nullptr;
    double loss_scale = 1.0;
    double next_loss_scale = 1.0;  // of the next step's, where passes of it run
    bool evaluate = false;         // forward without gradients
    // Makes the ranks that run the same ops agree on the micro-batch, which may change where it
    // lies; returns whether it has. Called once for each, by the first op that all these ranks run
    // on it; may be empty.
    std::function<bool(int micro_batch)> settle;
    // No stage of this rank needs the micro-batch any more; may be empty.
    std::function<void(int micro_batch)> release;
    // The last stage's result: the loss, or logits where no targets are given; may be empty.
    std::function<void(int micro_batch, const at::Tensor& result)> on_result;
  };
  // Begins a pass. One that trains has what the one before it has made ahead.
  void Begin(Pass pass);
  // Ends one that trains, behind its last op.
  void EndStep();
  // Drops what was made ahead, for other micro-batches than the next step will have.
  void DropAhead();

  at::Tensor Forward(int stage, int micro_batch, const std::vector<at::Tensor>& inputs) override;
  std::vector<at::Tensor> Backward(int stage, int micro_batch, const at::Tensor& gradient,
                                   bool last) override;
  std::vector<at::Tensor> BackwardInput(int stage, int micro_batch,
                                        const at::Tensor& gradient) override;
  void BackwardWeights(int stage, int micro_batch, bool last) override;
  at::Tensor EmptyBoundary(int from, int micro_batch) override;
  void Gather(const Op& op) override;
  void Free(const Op& op) override;
  void Reduce(int stage) override;
  void FinishReduction() override;
  std::string DescribeStage(int stage) const override { return plan_.Describe(stage); }

  // Sums gradients of this rank's rows (Layer::partial()) over the tensor ranks that share out
  // rows. Of those given; the others' gradients are whole.
  void SumPartial(const std::vector<Parameter*>& parameters);

  // Makes units whole for the passes, where data ranks share out gradients; set by ParallelModel.
  ShardedUnits* units = nullptr;
  // Called when the parameters of a layer have their gradients of this step; when those of a whole
  // stage have (some of its layers may have been announced before); when all have, to wait for the
  // reductions that were started.
  std::function<void(const std::vector<Parameter*>&)> on_layer_ready, on_stage_ready;
  std::function<void()> on_all_ready;

  // The weights before the last update, where they delay it; else null.
  WeightVersions* versions() { return versions_.get(); }

  // Sum over this pass's micro-batches, times loss_scale; 0 on ranks without the last stage. Waits
  // for the device.
  double loss() const { return loss_.defined() ? loss_.item<double>() : 0; }
  bool has_loss() const { return stages_.count(plan_.plan().num_stages() - 1) > 0; }
  // Whether a stage of this rank takes pixels, or must know which pictures cannot be decoded, to
  // leave their samples out of the loss: the first of the model and the last.
  bool needs_pictures() const { return takes_pixels() || has_loss(); }
  // This rank's copies of a weight that is tied between stages: one end of the model, or both.
  std::vector<Parameter*> tied_copies() const;
  // The trained parameters of an encoder that other pipeline ranks have copies of, neighbours in
  // the flat gradient; the first copy owns them.
  std::vector<Parameter*> encoder_copy() const;
  FlatParameters& parameters() { return *parameters_; }
  const FlatParameters& parameters() const { return *parameters_; }
  const StageLayout& plan() const { return plan_; }
  const ModelConfig& config() const { return config_; }
  at::Device device() const { return device_; }
  const std::map<int, std::unique_ptr<Stage>>& stages() const { return stages_; }

 private:
  // The last op of a micro-batch that uses it.
  struct LastUse {
    int stage = -1;
    bool forward = true;
  };
  // What the last stage of an encoder has made ahead.
  struct Features {
    at::Tensor rows;
    std::vector<int64_t> samples;  // of the micro-batch
  };
  // Micro-batches in use, where layers take them otherwise, by number; those that an encoder's
  // stream uses are apart (true), so that neither stream waits for the other.
  using MovedBatches = std::map<std::pair<int, bool>, MicroBatch>;
  // What passes ahead leave to their step.
  struct Ahead {
    MovedBatches moved;
    std::set<int> settled;
    at::Tensor loss;
  };
  using FeatureBuffer = std::map<std::pair<int, int>, Features>;  // by stage and micro-batch
  bool takes_pixels() const { return plan_.plan().LayersOf(stages_.begin()->first).begin == 0; }
  std::unique_ptr<Stage> MakeStage(int number, const Options& options);
  // The micro-batch as layers take it: on the device, its pictures normalized; a context rank's
  // part of them.
  const MicroBatch& Batch(int stage, int micro_batch);
  bool Settle(int stage, int micro_batch);
  const LayerLoad& LoadOf(int micro_batch) const;
  at::Tensor TakeFeatures(int stage, int micro_batch);
  void KeepIfAhead(int stage, int micro_batch, const at::Tensor& result);
  void BeginPass(OpKind kind, int stage);
  void BeginSums(OpKind kind, int stage);
  ShardedUnits::Use UseOf(const Layer& layer, OpKind kind) const;
  std::vector<ShardedUnits::Use> UsesOf(OpKind kind, int stage) const;
  std::map<size_t, int> SumsOf(const Schedule& schedule) const;
  void BeforeLayer(const Layer& layer);
  void AfterLayer(const Layer& layer);
  void ShowGradients(const Layer& layer);
  bool IsAhead(int micro_batch) const;
  void ShowWeightsFor(int micro_batch);
  std::vector<const Parameter*> ParametersOfNextStep() const;
  void ReleaseAfter(int stage, int micro_batch, bool forward);
  std::vector<at::Tensor> InputGradients(int stage, int micro_batch, at::Tensor input);
  at::TensorOptions ActivationOptions() const { return at::TensorOptions(device_).dtype(dtype_); }

  ModelConfig config_;
  StageLayout plan_;
  at::ScalarType dtype_;
  at::Device device_;
  std::map<int, std::unique_ptr<Stage>> stages_;  // by number
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<WeightVersions> versions_;  // where updates are delayed
  bool encoder_stream_;
  ContextParallel context_;
  Communicator* rows_group_ = nullptr;  // tensor ranks that share out rows
  std::set<const Parameter*> partial_;  // gradients of this rank's rows
  Pass pass_;
  std::optional<ops::PixelScale> pixel_scale_;  // made with the first pictures
  std::set<int> settled_;                       // micro-batches of this pass
  MovedBatches moved_;
  Ahead ahead_;
  std::vector<LastUse> last_use_;           // [micro-batch]
  FeatureBuffer features_, next_features_;  // of this step, and of the next one
  at::Tensor loss_;                         // fp64 scalar on the device; undefined: no loss yet
  int telling_ready_ = -1;                  // the stage in its last backward
  bool goes_backwards_ = false;             // what runs
  OpKind kind_ = OpKind::kForward;          // of the pass that `units` is in
};

}  // namespace equipoise
