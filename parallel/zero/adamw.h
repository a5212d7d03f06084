#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/lazy_tensor.h"
#include "parallel/parameter.h"
#include "parallel/shards.h"
#include "parallel/zero/kernels/adamw_rows.h"
#include "parallel/zero/moment.h"
#include "parallel/zero/owned_slices.h"
#include "parallel/zero/parameter_groups.h"
#include "parallel/zero/step_bound.h"

namespace equipoise {

// Hyperparameters of AdamW that all parameters share.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  // Of the moments between two steps: fp32, bf16, or kByte for codes of 8 bits (moment.h). A step
  // computes in fp32 and rounds to it.
  at::ScalarType moments = at::kFloat;
  // Whether the state of parameters on a device lies in the host's memory, and the step runs there
  // (ZeRO-Offload, Ren et al., arXiv 2101.06840). Changes no bit of a step by own kernels.
  bool on_host = false;
  // Set: bf16 weights have no masters. A step computes in fp32 and rounds its weights
  // stochastically, by random bits that depend on this number, the step, the parameter's name and
  // the element's place in the whole tensor alone (kernels/random_bits.h): so on no mesh.
  // REQUIRES: weights in bf16.
  std::optional<uint64_t> rounding_seed;
};

// AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2) on the fp32 master weights of one
// rank's shard. The moments are flat buffers [shards.shard_numel()], laid out as the shard; with
// one rank, as FlatParameters::gradient(). Frozen parameters have none. In fp32 a master is the
// value that the model computes with; in bf16 it is that value and a 16-bit remainder, which is
// kept here, as the moments are (split_master.h), unless it has no master. In fp16 it is kept here
// whole: one beyond fp16's range is infinite as a value, and no loss is finite from then on. With
// AdamWOptions::on_host the shard's values are kept here a second time, so that of a step only
// gradients come from the device, and values go there.
class AdamW {
 public:
  // One rank that updates all parameters. REQUIRES: every trainable parameter in exactly one group,
  // no frozen one in any. `parameters` must outlive this object.
  AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
        const AdamWOptions& options);
  // The optimizer of one rank's shard.
  AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups, const AdamWOptions& options,
        OwnedSlices own);

  // To be called once, when weights have been set: takes this shard's part of the masters and drops
  // them all (FlatParameters::DropMasters()), then makes moments of zeros, so that whole masters
  // and moments are never in memory together. The values are rounded as UpdateCompute() does.
  // Throws RunError where the host has no memory for an offloaded state.
  void TakeMasters();

  // One update of the weights p from the gradients, with the bias-corrected moments m and v:
  //   p -= lr * lr_factor * (m / (sqrt(v) + eps) + weight_decay * p)
  // Gradients count as multiplied by `clip` (ClipFactor()), in fp32, and stay as they are.
  // REQUIRES: TakeMasters(), as for all that follows.
  void Step(double lr, double clip = 1);
  // Whether Step(lr, clip) would leave only finite weights and moments. Tries the step on copies, a
  // region at a time: slower than the step itself, and changes nothing.
  bool StepIsFinite(double lr, double clip = 1) const;
  // Largest magnitudes of the shard's weights and moments; infinite where there is a NaN.
  StepBound Largest() const;
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  const AdamWOptions& options() const { return options_; }

  // Updates done so far; the bias correction uses it.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

  // The part of a trainable parameter in this shard: ranges of its elements, ascending.
  std::vector<Range> Runs(size_t index) const;
  // Moments of those elements, concatenated, as checkpoints have them; with one rank, in the
  // parameter's shape. Views to read and write, but of codes fp32 copies to read.
  at::Tensor exp_avg(size_t index) const { return View(exp_avg_, index); }
  at::Tensor exp_avg_sq(size_t index) const { return View(exp_avg_sq_, index); }
  // The same two, made each time that they are asked for where they are copies.
  std::array<LazyTensor, 2> Moments(size_t index) const;
  // Whether they are: then this writes them, from tensors of that size.
  bool moments_are_codes() const { return exp_avg_.is_codes(); }
  void SetMoments(size_t index, const at::Tensor& average, const at::Tensor& square);
  // Masters of those elements, concatenated, fp32: a copy, but for one rank in fp32. Of weights
  // without masters the weights, bf16.
  LazyTensor Master(size_t index) const;

  // Elements of the shard, which the following count in the order of the moments.
  int64_t numel() const { return own_.numel(); }
  // The masters of a range of them, fp32: a copy.
  at::Tensor Masters(Range range) const;
  // Replaces them by `masters`, fp32 on any device; a weight without a master is rounded to
  // nearest.
  void SetMasters(Range range, const at::Tensor& masters);
  // What Masters() gives of masters that were set: `masters`, fp32, rounded to nearest where
  // weights have none.
  at::Tensor AsHeld(const at::Tensor& masters) const;
  // What a tensor of as many elements as the shard holds of a parameter, as the moments do.
  at::Tensor PartOf(const at::Tensor& flat, size_t index) const;

 private:
  // Elements of a parameter in a region, counted from the region's begin.
  struct Part : Range {
    size_t parameter = 0;
  };
  // A part of the shard that is updated at a time: contiguous in the flat buffers and in the shard.
  struct Region {
    Shards::Run place;
    std::vector<std::vector<Part>> parts;  // [group]
    Range chunks;                          // in chunks_
    at::Tensor values;                     // offloaded: its values on the host, pinned
  };
  // The fp32 numbers of a region: views of the buffers where these hold such numbers.
  struct State {
    at::Tensor masters, averages, squares;
  };
  // Step()'s arguments, and its number (1 = the first).
  struct StepInput {
    double lr, clip;
    int64_t number;
  };

  bool without_masters() const { return options_.rounding_seed.has_value(); }
  // Whether values are on a device, and their state on the host; gradients may be on either.
  bool offloaded() const { return options_.on_host && !parameters_.values_device().is_cpu(); }
  bool gradients_arrive() const { return offloaded() && !parameters_.gradient().is_cpu(); }
  bool steps_on_host() const { return options_.on_host || parameters_.gradient().is_cpu(); }
  Range Whole(size_t index) const;
  std::vector<int64_t> SizesOf(size_t index) const;
  Range InShard(size_t index) const;
  at::Tensor View(const Moment& moment, size_t index) const;
  void MakeRegions();
  void AddParts(const Shards::Run& run, size_t group, size_t parameter);
  // Where a region's first element lies in the buffers of chunks.
  struct Begins {
    int64_t weight = 0, gradient = 0, local = 0;
  };
  void AddChunks(const Region& region, const Begins& at,
                 std::vector<kernels::AdamWChunk>& chunks) const;
  void MakeChunks();
  at::Tensor ValuesOf(const Region& region) const;
  at::Tensor ValuesOf(const Shards::Run& run) const;
  State Load(const Region& region) const;
  void Store(const Region& region, const State& state);
  void Update(const Region& region, State& state, const StepInput& input) const;
  void UpdateByRows(const Region& region, State& state, const StepInput& input) const;
  template <class Row>
  void BeginRow(const StepInput& input, Row& row) const;
  // Step() by the row function on the host: of some chunks; of all, piece by piece as gradients
  // come from the device.
  template <class Weight, bool kHasMaster>
  void StepRows(Range chunks, const at::Tensor& values, const at::Tensor& gradients,
                const StepInput& input);
  void StepOnHost(Range chunks, const at::Tensor& values, const at::Tensor& gradients,
                  const StepInput& input);
  template <class Weight, class Row>
  void BeginHostRow(const at::Tensor& values, const at::Tensor& gradients, const StepInput& input,
                    Row& row) const;
  void StepOffloaded(const StepInput& input);
  // Without masters: hashes of a parameter's name, and of the seed and the number of a step.
  uint64_t KeyOf(size_t parameter) const;
  uint64_t RandomOf(int64_t step) const;
  kernels::WholePlace PlaceOf(const Region& region, const Part& part) const;
  void RoundStochastically(const Region& region, const at::Tensor& masters);
  // fp16: rounds the masters into the weights.
  void RoundMasters();
  bool StepByOwnKernel(const StepInput& input);
  at::Tensor JoinedMaster(size_t index) const;
  // A range of the shard in a region: where it begins there and in the shard, and its size.
  struct Overlap {
    int64_t in_region = 0, local = 0, size = 0;
  };
  template <class Visit>
  void ForRegions(Range range, const Visit& visit) const;

  FlatParameters& parameters_;
  std::vector<ParameterGroup> groups_;
  AdamWOptions options_;
  OwnedSlices own_;
  std::vector<Region> regions_;
  Moment exp_avg_, exp_avg_sq_;
  at::Tensor remainders_;                    // bf16 with masters: int16, laid out as the moments
  at::Tensor masters_;                       // fp16: fp32, likewise; both undefined elsewhere
  std::vector<kernels::AdamWChunk> chunks_;  // of row functions: made by the first step
  at::Tensor chunks_on_device_;              // the same, of the own kernel
  std::array<at::Tensor, 2> arriving_;       // offloaded: gradients of a region and of the next
  int64_t steps_ = 0;
};

}  // namespace equipoise
