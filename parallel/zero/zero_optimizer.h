#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/lazy_tensor.h"
#include "parallel/parameter.h"
#include "parallel/sharded_state.h"
#include "parallel/shards.h"
#include "parallel/zero/adamw.h"
#include "parallel/zero/grad_norm.h"
#include "parallel/zero/owned_slices.h"

namespace equipoise {

// How the data ranks of a group share a flat gradient: not at all (kNone), by slices of buckets of
// `bucket_bytes` (kOptimizer), or by slices of units (from kGradients on). Elements that several
// pipeline ranks hold copies of are in buckets of their own, whose number is written to `copied`;
// where nothing is shared (kNone), `copied` becomes that of a lone copy.
Shards ZeroShards(ShardedState sharded, const FlatParameters& parameters, const Communicator& data,
                  int64_t bucket_bytes, CopiedElements* copied = nullptr);

// The optimizer of one rank of a mesh: AdamW, with its state sharded over the data ranks (ZeRO
// stage 1, Rajbhandari et al. 2020, section 5.1) where `shards` has several ranks. Each data rank
// then keeps and updates its shard of masters and moments, and the updated weights are gathered in
// the compute dtype, bucket by bucket, while the program goes on: who reads them first waits
// (FlatParameters::AwaitValues()). With ZeRO 3 passes gather them. The weights have the same bits
// as without sharding. Where several groups of data ranks hold a copy of that state each
// (hierarchical ZeRO), gradients are the same on all copies, which take the same step. Per step,
// once the gradients are summed:
//
//   norm = optimizer.GradientNorm();   optimizer.Step(lr, ClipFactor(norm, max_norm));
//
// No step leaves a weight or moment that is not finite. All of these are collective. Not
// thread-safe.
class ZeroOptimizer {
 public:
  struct Groups {
    Communicator& data;   // ranks with the same parameters that share out one copy of their state
    Communicator& world;  // all ranks of the model
    // Ranks that hold a copy of this rank's share; null: there is no other.
    Communicator* shard_copies = nullptr;
    // Ranks with copies of the same first elements, and how they share them.
    Communicator* copies = nullptr;
    CopiedElements copied = {};
    // Ranks of several models that take or refuse each step together; null: there is one model.
    Communicator* models = nullptr;
  };
  // Collective. `parameters` and the groups must outlive it.
  ZeroOptimizer(FlatParameters& parameters, std::vector<ParameterGroup> groups,
                const AdamWOptions& options, const Shards& shards, Groups ranks);
  // Waits for gathers that nobody has waited for.
  ~ZeroOptimizer();
  ZeroOptimizer(ZeroOptimizer&&) = default;

  // To be called once before the first step, when the weights have been set and the values updated
  // (FlatParameters::UpdateCompute()): see AdamW.
  void TakeMasters();

  // The 2-norm of all gradients of the model. Collective over `world`.
  double GradientNorm() { return largest_gradient_ = norm_.Compute(); }
  // Multiplies the gradients that this rank has reduced, and so their norm.
  void ScaleGradients(double factor);
  // One step of AdamW on gradients times `clip`, which stay as they are; updates the values of the
  // trainable parameters. False where a weight or a moment of any rank would not be finite: then no
  // rank has changed anything. Nearly always bounds prove a step finite (step_bound.h); where they
  // do not, each rank tries it on copies, and the ranks agree.
  bool Step(double lr, double clip = 1);

  // The fp32 masters of the trained weights that this rank updates, its share, in an order of its
  // own. REQUIRES: TakeMasters() was called, as for those of it below.
  int64_t share_numel() const { return adamw_.numel(); }
  // The share in ranges of which a few copies are little beside it.
  std::vector<Range> PiecesOfShare() const;
  at::Tensor Masters(Range share) const;
  // Replaces them all: by what `masters` returns for each of PiecesOfShare(). The
  // values follow, as after Step(). Collective.
  void SetMasters(const std::function<at::Tensor(Range share)>& masters);
  // As AdamW::AsHeld().
  at::Tensor AsHeld(const at::Tensor& masters) const { return adamw_.AsHeld(masters); }

  int64_t steps() const { return adamw_.steps(); }
  // Sets the number of steps done. To be called after moments were read from a checkpoint.
  void set_steps(int64_t steps);

  // The part of a checkpoint's tensor that is on this rank: ranges of a parameter's elements,
  // concatenated in `values`: masters in fp32, weights without them in bf16, moments in their dtype
  // (codes of 8 bits as fp32 numbers, AdamW::Moments()), a frozen weight in the compute dtype.
  struct State {
    std::string name;  // NAME of the parameter, or exp_avg.NAME, exp_avg_sq.NAME
    const Parameter* parameter = nullptr;
    std::vector<Range> runs;
    LazyTensor values;
  };
  // The moments. REQUIRES: TakeMasters() was called.
  std::vector<State> Moments() const;
  // Has `read` write into tensors of all moments: of those themselves at once, or where they are
  // codes of some at a time, until it has been called for all. REQUIRES: as above.
  void ReadMoments(const std::function<void(const std::vector<State>&)>& read);
  // The weights and moments that this rank saves, but a base under adapters; over all ranks,
  // everything once. Waits for gathers that are under way. Data ranks that hold the same tensors
  // take turns by whole parameters. REQUIRES: TakeMasters() was called.
  std::vector<State> ToSave() const;
  // What a tensor of share_numel() elements, such as another optimizer's state, holds of each
  // parameter, as states named PREFIX and the parameter's name; with `to_save` of what this rank
  // saves.
  std::vector<State> StatesOf(const std::string& prefix, const at::Tensor& share,
                              bool to_save) const;
  // Likewise what this rank saves of a tensor that each has whole, of the trained parameters, laid
  // out as FlatParameters::compute().
  std::vector<State> StatesOfValues(const std::string& prefix, const at::Tensor& values) const;

 private:
  bool sharded() const { return shards_.ranks() > 1; }
  Range FrozenRange(const Parameter& parameter) const;
  bool Saves(size_t index) const;
  bool IsShared(size_t index) const;
  void ListShared();
  void AddFrozen(size_t index, std::vector<State>& states) const;
  void AddMoments(size_t index, std::vector<State>& states) const;
  void SendValues();
  void GatherValues();
  void GatherShares(size_t bucket);
  void SendRest(std::vector<Work>& gathers);
  bool StepIsFinite(double lr, double clip);
  void MeasureBound();

  FlatParameters& parameters_;
  Shards shards_;
  Communicator& data_;
  Communicator& world_;
  Communicator* shard_copies_;
  Communicator* copies_;
  Communicator* models_;
  CopiedElements copied_;
  std::vector<bool> saves_shared_;  // [parameter]
  AdamW adamw_;
  DistributedNorm norm_;

  // Equal on every rank of `world`.
  std::optional<StepBound> bound_;  // of weights and moments; absent: to be measured
  double largest_lr_factor_ = 0, largest_decay_ = 0;
  double largest_gradient_ = std::numeric_limits<double>::infinity();  // of the next step
};

}  // namespace equipoise
