#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
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

// A weight as layers see it: a handle, looked up when an operation runs and never captured by the
// autograd graph. So the tensor behind it may be gathered, freed, moved or replaced between two
// uses, and its gradient goes straight into a flat fp32 buffer.
//
// `value` and `gradient` are views into the buffers of FlatParameters.
struct Parameter {
  std::string name;            // its Hugging Face name
  std::vector<int64_t> shape;  // of this rank's part
  TensorPart part;
  bool trainable = true;
  at::Tensor value;     // compute dtype, `shape`
  at::Tensor master;    // fp32, `shape`; the same memory as `value` when computing in fp32
  at::Tensor gradient;  // fp32, `shape`; undefined when frozen

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
  // gradient += d, in fp32. `d` has `shape` and any floating dtype. REQUIRES: trainable.
  void AddGradient(const at::Tensor& d);
};

// Owns the memory of a rank's parameters: one flat fp32 master buffer, one flat fp32 gradient
// buffer (trainable parameters only), and a flat compute copy where the compute dtype is not fp32.
// Parameters lie in the order given (the order of the layers), so that the gradients of
// consecutive layers are one contiguous slice. Each parameter begins at a multiple of 16 elements.
// The list must outlive this object.
class FlatParameters {
 public:
  FlatParameters(std::vector<Parameter*> parameters, at::ScalarType compute_dtype);

  const std::vector<Parameter*>& parameters() const { return parameters_; }
  at::Tensor& master() { return master_; }
  at::Tensor& gradient() { return gradient_; }
  // Where a parameter's gradient begins in gradient(); -1 when it is frozen.
  int64_t gradient_offset(size_t index) const { return gradient_offsets_[index]; }
  void ZeroGradient();
  // Rounds the master weights into the compute copy (nothing to do in fp32).
  void UpdateCompute();

 private:
  std::vector<Parameter*> parameters_;
  std::vector<int64_t> gradient_offsets_;
  at::Tensor master_, gradient_, compute_;
};

}  // namespace equipoise
