#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "infini_train/core/tensor.h"

namespace infini_train {

namespace autograd {
class Node;
}

/// What autograd keeps beside a tensor.
struct AutogradMeta {
  bool requires_grad = false;
  Tensor grad;
  /// The function whose output this tensor is; null for leaves.
  std::shared_ptr<autograd::Node> grad_fn;
  /// Which of grad_fn's outputs.
  int output_index = 0;
  /// Storage version that grad_fn describes.
  std::uint64_t grad_fn_version = 0;
  /// Whether the tensor is a view of another tensor that takes part in autograd.
  bool is_view = false;
  /// Makes the values again from what grad_fn keeps, where that is cheap; empty where it is not.
  std::function<Tensor()> recompute;
  /// Storage version that `recompute` gives.
  std::uint64_t recompute_version = 0;
  /// The leaf's accumulator node, shared by all its uses while any graph holds it.
  std::weak_ptr<autograd::Node> grad_accumulator;
  /// Called with a gradient on its way into the tensor; a defined result replaces it.
  std::map<int, std::function<Tensor(const Tensor&)>> hooks;
  /// Of leaves: called when a backward has nothing more to add to `grad`.
  std::map<int, std::function<void(const Tensor&)>> final_grad_hooks;
};

}  // namespace infini_train
