#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "parallel/parameter.h"

namespace equipoise::ops {

// Recording of our operations in the autograd graph: an operation computes its result without
// recording, then makes one node of its own the result's grad_fn. A node saves activations as plain
// members, frees them in release_variables(), reads weights from their Parameters when it runs, and
// adds their gradients there. So the graph never holds a weight, an operation whose input needs no
// gradient still trains its weights, and one with neither records nothing.

// Guard under which ATen computes without recording.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// True when the result of an operation on `inputs` and `weights` needs a node.
bool NeedsNode(std::initializer_list<const at::Tensor*> inputs,
               std::initializer_list<const Parameter*> weights);

// True when gradients are enabled and `input` needs one.
bool NeedsGradient(const at::Tensor& input);

// Makes `node` the grad_fn of `output`. Result i of the node's apply() is the gradient of
// inputs[i]; undefined inputs are allowed, and get none.
void Record(const at::Tensor& output, const std::shared_ptr<torch::autograd::Node>& node,
            std::initializer_list<const at::Tensor*> inputs);
// Record() with several outputs, whose gradients apply() gets in their order.
void Record(const std::vector<at::Tensor>& outputs,
            const std::shared_ptr<torch::autograd::Node>& node,
            const std::vector<at::Tensor>& inputs);

}  // namespace equipoise::ops
