#pragma once

#include <functional>
#include <span>
#include <vector>

#include "infini_train/autograd/node.h"
#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

namespace infini_train {

/// Adds d loss / d leaf to the gradient of every leaf that `loss` (one element) depends on and that
/// requires one. Runs on the calling thread, later operations first, without recording and without
/// autocast; saved values are released as soon as they are used, unless `retain_graph` keeps them
/// for another backward over the same graph. Throws Error when `loss` has no history, the graph was
/// released, or a saved value was modified in place.
INFINI_TRAIN_API void Backward(const Tensor& loss, bool retain_graph = false);

/// The same from several outputs at once, with d result / d output given for each.
INFINI_TRAIN_API void Backward(TensorList outputs, TensorList grad_outputs,
                               bool retain_graph = false);

namespace autograd {

/// The same with gradients that may know the sums of their columns; the graph is released.
INFINI_TRAIN_API void BackwardFrom(TensorList outputs, std::span<const Gradient> grad_outputs);

}  // namespace autograd

/// Calls `hook` with each gradient that reaches `tensor` in backward, before it is used further
/// (for a leaf: with the sum over all uses, before it is added to grad()). A defined result
/// replaces it. Returns a number for RemoveHook. Throws Error unless the tensor requires a
/// gradient.
INFINI_TRAIN_API int RegisterHook(const Tensor& tensor, autograd::TensorHook hook);
/// Calls `hook` when a backward has nothing more to add to the grad() of a leaf: it may be used
/// while the backward goes on with others. A backward inside another (Checkpoint) has its own end,
/// so a leaf that several of them use is final more than once. Throws Error for what is no leaf
/// that requires a gradient.
INFINI_TRAIN_API int RegisterFinalGradHook(const Tensor& leaf,
                                           std::function<void(const Tensor& leaf)> hook);
INFINI_TRAIN_API void RemoveHook(const Tensor& tensor, int id);

/// Lets a non-leaf add up its gradients in grad() as well.
INFINI_TRAIN_API void RetainGrad(const Tensor& tensor);

/// Runs `function` without keeping its intermediate values, and again in backward to have them:
/// memory for time (Chen et al., "Training deep nets with sublinear memory cost", 2016). Random
/// numbers and autocast are the same both times. `function` may use other tensors that require
/// gradients (parameters) as well as `inputs`. Returns its outputs.
INFINI_TRAIN_API std::vector<Tensor> Checkpoint(
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function,
    const std::vector<Tensor>& inputs);

}  // namespace infini_train
