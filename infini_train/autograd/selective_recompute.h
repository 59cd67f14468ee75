#pragma once

#include <functional>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

namespace infini_train {

/// For a scope on the calling thread, functions keep less for backward where backward can make it
/// again in a pass over memory, beside which the products are long: what norms, activations,
/// dropout and the order of experts gave to linear layers and adapters, and parameters that
/// autocast converted. Gradients have the same bits.
class INFINI_TRAIN_API SelectiveRecompute {
 public:
  explicit SelectiveRecompute(bool enabled = true);
  ~SelectiveRecompute();
  SelectiveRecompute(const SelectiveRecompute&) = delete;
  SelectiveRecompute& operator=(const SelectiveRecompute&) = delete;

  static bool Enabled();

 private:
  bool previous_;
};

namespace autograd {

/// How to make a recorded tensor's values again in backward, for whoever would have to keep them.
void SetRecompute(const Tensor& tensor, std::function<Tensor()> recompute);
/// Empty where the values have to be kept.
std::function<Tensor()> RecomputeOf(const Tensor& tensor);
/// Where x can be made again, so can `result`, which `function` makes of it.
void SetRecomputeFrom(const Tensor& x, const Tensor& result,
                      std::function<Tensor(const Tensor&)> function);

}  // namespace autograd
}  // namespace infini_train
