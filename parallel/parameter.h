#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "parallel/parameter_role.h"
#include "parallel/sharded_state.h"
#include "parallel/shards.h"

namespace equipoise {

class PackedWeight;

// The part of a whole tensor that a rank holds: all of it, or a range along one dimension where the
// tensor is split over the tensor-parallel ranks.
struct TensorPart {
  int dim = 0;
  int64_t begin = 0;   // first index along `dim`
  int64_t whole = -1;  // size of the whole tensor along `dim`; -1: not split
  // Set on one of the ranks that hold the same part: the one that counts it in the gradient norm
  // and saves it.
  bool owner = true;

  bool split() const { return whole >= 0; }
  bool operator==(const TensorPart&) const = default;
};

// Weight-gradient computations that a split backward has put off (zero bubble), in the order in
// which they are to run.
using DeferredGradients = std::vector<std::function<void()>>;

// A weight as layers see it: a handle, looked up when an operation runs and never captured by the
// autograd graph. The tensor behind it may therefore be gathered, freed, moved or replaced between
// two uses, and its gradient is added straight into a flat fp32 buffer.
//
// `value` and `gradient` are views into the buffers of FlatParameters, or of a unit that was
// gathered.
struct Parameter {
  std::string name;            // its Hugging Face name
  std::string component;       // part of the model, as settings name it: "vision", "llm", ...
  std::vector<int64_t> shape;  // of this rank's part
  TensorPart part;
  ParameterRole role = ParameterRole::kWeight;
  bool trainable = true;
  // Held in fewer bits: `packed` is set with the weights, and there is no value.
  bool packs = false;
  std::shared_ptr<const PackedWeight> packed;
  bool fp8 = false;   // products with it, and its transpose, are in fp8 (models/ops/fp8_product.h)
  at::Tensor value;   // compute dtype, `shape`
  at::Tensor master;  // fp32, `shape`; see FlatParameters; undefined when frozen
  at::Tensor gradient;  // fp32, `shape`; undefined when frozen
  // For the weight of a linear layer during a split backward: takes the computations that add to
  // its gradient and its bias's. Null: they run at once.
  DeferredGradients* deferred = nullptr;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  // Shape of the whole tensor.
  std::vector<int64_t> whole_shape() const {
    std::vector<int64_t> whole = shape;
    if (part.split()) whole[part.dim] = part.whole;
    return whole;
  }
  // The tensor to load into and to save: the master, or the value of a frozen parameter. Undefined
  // once the masters were dropped (see FlatParameters).
  at::Tensor& stored() { return trainable ? master : value; }
  const at::Tensor& stored() const { return trainable ? master : value; }
  // gradient += d, in fp32. `d`: `shape`, any floating dtype. REQUIRES: trainable.
  void AddGradient(const at::Tensor& d);
};

// The memory of a rank's parameters: one flat buffer of all values in the compute dtype and, for
// trainable parameters only, one flat fp32 gradient buffer. A frozen parameter is held once, in the
// compute dtype; one that is packed has its own memory.
//
// Masters are the values themselves when computing in fp32. In bf16 and fp16 they lie in the
// gradient's memory while weights are set, until DropMasters(): the optimizer takes them before,
// in bf16 what a value does not say of its master (split_master.h), in fp16 all of it.
//
// Trainable parameters come first, then the frozen ones, both in the order given (the order of the
// layers): the gradients of consecutive layers are one contiguous slice, and an offset in the
// gradient is the same offset in the other buffers. Each parameter begins at a multiple of
// kFlatAlignment elements. The list must outlive this object. All buffers are on `device`.
//
// Where data ranks share out gradients (ZeRO 2), gradient() is this rank's shard: a slice of each
// unit, the parameters of a layer; with shared-out values (ZeRO 3) compute() is as well. What a
// parameter's handle shows is then set, unit by unit, while a pass has the unit whole
// (parallel/zero/sharded_units.h), and undefined at other times. Runs and slices count in the
// buffers of all ranks, whatever of them is here. What Sharding::offloaded names of the two buffers
// lies in pinned memory of the host.
class FlatParameters {
 public:
  // `shards`: the number of ranks that share the optimizer's state: the trainable part of the
  // buffers is padded to a multiple of it.
  FlatParameters(std::vector<Parameter*> parameters, at::ScalarType compute_dtype, int shards = 1,
                 at::Device device = at::kCPU);
  // A rank's part of that `sharding`. Units matter where it reaches to gradients.
  FlatParameters(std::vector<std::vector<Parameter*>> units, at::ScalarType compute_dtype,
                 const Sharding& sharding, at::Device device = at::kCPU);

  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const Sharding& sharding() const { return sharding_; }
  // Masters of the trainable parameters, laid out as gradient(); undefined once they were dropped.
  at::Tensor& master() { return master_; }
  at::Tensor& gradient() { return gradient_; }
  const at::Tensor& gradient() const { return gradient_; }
  // Values of all parameters; in fp32 its first part is master(). Waits for those that are pending.
  at::Tensor& compute() {
    AwaitValues();
    return compute_;
  }
  // Where compute() lies, and where passes run.
  at::Device values_device() const { return compute_.device(); }
  at::Device device() const { return device_; }
  // Elements of the trainable parameters, over all ranks that share them.
  int64_t trained_numel() const { return trained_.numel(); }
  // Offset of a parameter in gradient(), master() and compute(), were they whole; -1 when it is
  // frozen.
  int64_t gradient_offset(size_t index) const { return gradient_offsets_[index]; }
  // The elements of a run of this rank's shard, as they lie in gradient() and in compute().
  at::Tensor GradientOf(const Shards::Run& run) const {
    return Part(gradient_, GradientAt(run), run);
  }
  at::Tensor ValueOf(const Shards::Run& run) const { return Part(compute_, ValueAt(run), run); }
  int64_t GradientAt(const Shards::Run& run) const {
    return sharding_.gradients() ? run.local : run.flat.begin;
  }
  int64_t ValueAt(const Shards::Run& run) const {
    return sharding_.values() ? run.local : run.flat.begin;
  }

  // Says that elements of compute() arrive later, and how they are waited for: those that are read
  // first are awaited first, by AwaitValues().
  void ArriveLater(Range flat, std::function<void()> wait);
  // Waits for all values, or those of some parameters.
  void AwaitValues();
  void AwaitValues(const std::vector<Parameter*>& parameters);

  // Calls `set` with parameters whose weights it is to write (Parameter::stored), until it has
  // been called for all; then the values are those of the masters. With shared-out gradients only
  // the masters of a unit are in memory at a time. Throws DataError for a weight beyond the range
  // of fp16, where values are. REQUIRES: masters were not dropped.
  using SetFunction = std::function<void(const std::vector<Parameter*>&)>;
  void SetWeights(const SetFunction& set);
  // Where the elements of a frozen parameter that this rank keeps lie: in it, and in compute().
  struct FrozenPart {
    Range range;
    at::Tensor values;
  };
  std::vector<FrozenPart> FrozenParts(size_t index) const;
  // Sets the gradients to zero, which drops masters that lie in their memory.
  void ZeroGradient();
  // Rounds the masters into the values of the trainable parameters, as SplitMaster() does (nothing
  // to do in fp32). Throws as SetWeights(). REQUIRES: masters, of whole gradients.
  void UpdateCompute();

  // Whether masters are, or were, in the gradient's memory: whether the compute dtype is not fp32.
  bool master_aliases_gradient() const { return compute_.scalar_type() != at::kFloat; }
  // Ends the aliasing: the parameters have no master from now on, and zero gradients. Does nothing
  // in fp32, and when it has been done.
  void DropMasters();

  // Units and their memory. A unit's trainable part is bucket `unit` of trained(), its frozen part
  // bucket `unit` of frozen(), whose elements follow those of trained() in compute().
  size_t num_units() const { return units_.size(); }
  size_t UnitOf(const Parameter& parameter) const { return unit_of_[index_of_.at(&parameter)]; }
  const Shards& trained() const { return trained_; }
  const Shards& frozen() const { return frozen_; }
  // This rank's slices of a unit, in compute() and in gradient(). REQUIRES: those are shards.
  at::Tensor ValueSlice(size_t unit, bool trained) const;
  at::Tensor GradientSlice(size_t unit) const;
  // Sets what the handles of a unit show: values in buffers of its trainable and of its frozen
  // part, and gradients; undefined where a buffer is.
  void ShowValues(size_t unit, const at::Tensor& trained, const at::Tensor& frozen);
  void ShowGradients(size_t unit, const at::Tensor& whole);

 private:
  static at::Tensor Part(const at::Tensor& buffer, int64_t at, const Shards::Run& run) {
    return buffer.narrow(0, at, run.flat.size());
  }
  void Place(const std::vector<std::vector<Parameter*>>& units);
  void Allocate(at::ScalarType compute_dtype);
  void ShowWhole();
  void SetUnit(size_t unit, const SetFunction& set);

  Sharding sharding_;
  at::Device device_;
  std::vector<Parameter*> parameters_;
  std::vector<std::vector<size_t>> units_;  // indices into parameters_
  std::unordered_map<const Parameter*, size_t> index_of_;
  std::vector<size_t> unit_of_;  // by index
  Shards trained_{0}, frozen_{0};
  std::vector<int64_t> gradient_offsets_;
  std::vector<int64_t> offsets_;  // in trained_, or where it is frozen in frozen_
  at::Tensor master_, gradient_, compute_;
  struct Pending {
    Range flat;
    std::function<void()> wait;
  };
  std::vector<Pending> pending_;
};

}  // namespace equipoise
