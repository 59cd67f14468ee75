#pragma once

#include "infini_train/autograd/node.h"

namespace infini_train::autograd {

/// Where the gradient of `tensor` goes: to what made it or, for a leaf, to the node that adds up
/// its gradients; nowhere for a tensor that requires none.
Edge EdgeTo(const Tensor& tensor);

}  // namespace infini_train::autograd
