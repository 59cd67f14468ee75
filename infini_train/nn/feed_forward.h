#pragma once

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/nn/module.h"

namespace infini_train::nn {

/// What a block adds to the residual stream behind attention: x [.., C] to [.., C].
class INFINI_TRAIN_API FeedForward : public Module {
 public:
  /// The weight of the projection back to the residual stream.
  virtual const Tensor& output_weight() const = 0;
};

}  // namespace infini_train::nn
