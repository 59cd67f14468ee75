#pragma once

#include "infini_train/autograd/fp8.h"
#include "infini_train/core/api.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/nn/module.h"

namespace infini_train::nn {

class Linear;

/// What a block adds to the residual stream behind attention: x [.., C] to [.., C].
class INFINI_TRAIN_API FeedForward : public Module {
 public:
  /// The weight of the projection back to the residual stream.
  virtual const Tensor& output_weight() const = 0;

  /// The layer that alone takes x; null where there is none such.
  virtual const Linear* input_projection() const { return nullptr; }
  /// A call with x in FP8, where no hooks watch and the input projection takes it.
  virtual Tensor ApplyToQuantized(const Fp8Activation&, const ForwardContext&) {
    throw Error("expected a layer whose input projection takes FP8");
  }
};

}  // namespace infini_train::nn
