#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace equipoise {

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
// `value` and `gradient` are views into the buffers of FlatParameters.
struct Parameter {
  std::string name;            // its Hugging Face name
  std::string component;       // part of the model, as settings name it: "vision", "llm", ...
  std::vector<int64_t> shape;  // of this rank's part
  TensorPart part;
  bool trainable = true;
  at::Tensor value;     // compute dtype, `shape`
  at::Tensor master;    // fp32, `shape`; see FlatParameters; undefined when frozen
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
// compute dtype.
//
// Masters are the values themselves when computing in fp32. In bf16 they lie in the gradient's
// memory while weights are set, until DropMasters(): what of a master its bf16 value does not say
// is kept by the optimizer (split_master.h), which takes it before.
//
// Trainable parameters come first, then the frozen ones, both in the order given (the order of the
// layers): the gradients of consecutive layers are one contiguous slice, and an offset in the
// gradient is the same offset in the other buffers. Each parameter begins at a multiple of
// Shards::kBlock elements. The list must outlive this object.
//
// `shards` is the number of ranks that share the optimizer's state: the trainable part of the
// buffers is padded to a multiple of it. All buffers are on `device`.
class FlatParameters {
 public:
  FlatParameters(std::vector<Parameter*> parameters, at::ScalarType compute_dtype, int shards = 1,
                 at::Device device = at::kCPU);

  const std::vector<Parameter*>& parameters() const { return parameters_; }
  // Masters of the trainable parameters; undefined once they were dropped.
  at::Tensor& master() { return master_; }
  at::Tensor& gradient() { return gradient_; }
  const at::Tensor& gradient() const { return gradient_; }
  // Values of all parameters; in fp32 its first part is master().
  at::Tensor& compute() { return compute_; }
  // Offset of a parameter in gradient(), master() and compute(); -1 when it is frozen.
  int64_t gradient_offset(size_t index) const { return gradient_offsets_[index]; }
  // Sets the gradients to zero, which drops masters that lie in their memory.
  void ZeroGradient();
  // Rounds the masters into the values of the trainable parameters, as SplitMaster() does (nothing
  // to do in fp32). REQUIRES: masters.
  void UpdateCompute();

  // Whether masters are, or were, in the gradient's memory: whether the compute dtype is not fp32.
  bool master_aliases_gradient() const { return compute_.scalar_type() != at::kFloat; }
  // Ends the aliasing: the parameters have no master from now on, and zero gradients. Does nothing
  // in fp32, and when it has been done.
  void DropMasters();

 private:
  std::vector<Parameter*> parameters_;
  std::vector<int64_t> gradient_offsets_;
  at::Tensor master_, gradient_, compute_;
};

}  // namespace equipoise
