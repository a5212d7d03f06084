#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace equipoise {

// Which part of a whole tensor a rank holds: all of it, or a range along one dimension when the
// tensor is split over the tensor-parallel ranks.
struct TensorPart {
  int dim = 0;
  int64_t begin = 0;   // first index along `dim`
  int64_t whole = -1;  // size of the whole tensor along `dim`; -1: not split
  // One rank of those that hold the same part: it counts the part in the gradient norm and saves
  // it.
  bool owner = true;

  bool split() const { return whole >= 0; }
  bool operator==(const TensorPart&) const = default;
};

// What adds to gradients of linear layers and is left for later, in its order.
using DeferredGradients = std::vector<std::function<void()>>;

// A weight as layers see it: a handle, looked up when an operation runs and never captured by the
// autograd graph. So the tensor behind it may be gathered, freed, moved or replaced between two
// uses, and its gradient goes straight into a flat fp32 buffer.
//
// `value` and `gradient` are views into the buffers of FlatParameters.
struct Parameter {
  std::string name;            // its Hugging Face name
  std::string component;       // as settings name the part of the model that it belongs to: "llm"
  std::vector<int64_t> shape;  // of this rank's part
  TensorPart part;
  bool trainable = true;
  at::Tensor value;     // compute dtype, `shape`
  at::Tensor master;    // fp32, `shape`; the same memory as `value` when computing in fp32;
                        // undefined when frozen
  at::Tensor gradient;  // fp32, `shape`; undefined when frozen
  // Of a linear layer's weight: takes what adds to its gradient and its bias', in a backward pass
  // in two halves; null: it is done at once.
  DeferredGradients* deferred = nullptr;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  // Of the whole tensor.
  std::vector<int64_t> whole_shape() const {
    std::vector<int64_t> whole = shape;
    if (part.split()) whole[part.dim] = part.whole;
    return whole;
  }
  // What weights are set and saved as: the master, or the value of a frozen parameter. Undefined
  // once masters were dropped (see FlatParameters).
  at::Tensor& stored() { return trainable ? master : value; }
  const at::Tensor& stored() const { return trainable ? master : value; }
  // gradient += d, in fp32. `d` has `shape` and any floating dtype. REQUIRES: trainable.
  void AddGradient(const at::Tensor& d);
};

// Owns the memory of a rank's parameters: one flat buffer of all values in the compute dtype, and
// of trainable parameters alone one flat fp32 gradient buffer and, where the compute dtype is not
// fp32, one flat fp32 master buffer. A frozen parameter is held once, in the compute dtype.
// Trainable parameters come first, then the frozen ones, both in the order given (the order of the
// layers): so the gradients of consecutive layers are one contiguous slice, and a place in the
// gradient is the same place in the other buffers. Each parameter begins at a multiple of
// Shards::kBlock elements. The list must outlive this object.
//
// `shards` is the number of ranks that share the optimizer's state: the trainable part of the
// buffers is padded to a multiple of it. With more than one, and another compute dtype than fp32,
// no rank keeps all masters: they are lent the gradient's memory until weights have been set and
// DropMasters() is called. All of it is on `device`.
class FlatParameters {
 public:
  FlatParameters(std::vector<Parameter*> parameters, at::ScalarType compute_dtype, int shards = 1,
                 at::Device device = at::kCPU);

  const std::vector<Parameter*>& parameters() const { return parameters_; }
  // Of the trainable parameters. REQUIRES: masters are not lent.
  at::Tensor& master() { return master_; }
  at::Tensor& gradient() { return gradient_; }
  const at::Tensor& gradient() const { return gradient_; }
  // The memory of all `value`s; in fp32 its first part is master().
  at::Tensor& compute() { return compute_; }
  // Where a parameter's gradient begins in gradient(), its master in master() and its value in
  // compute(); -1 when it is frozen.
  int64_t gradient_offset(size_t index) const { return gradient_offsets_[index]; }
  void ZeroGradient();
  // Rounds the masters into the values of the trainable parameters (nothing to do in fp32).
  // REQUIRES: masters.
  void UpdateCompute();

  // Whether the masters lie in the gradient's memory, or did until they were dropped.
  bool master_aliases_gradient() const { return !master_.defined(); }
  // The optimizer has taken its share of the lent masters: the parameters have none from now on,
  // and zero gradients.
  void DropMasters();

 private:
  std::vector<Parameter*> parameters_;
  std::vector<int64_t> gradient_offsets_;
  at::Tensor master_, gradient_, compute_;
  bool dropped_ = false;  // the lent masters
};

}  // namespace equipoise
