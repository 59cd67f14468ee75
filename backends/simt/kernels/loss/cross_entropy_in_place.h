#pragma once

#include <cstdint>

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// losses (stat [N]) as CrossEntropy gives them for logits [N, V], whose last stride is
/// 1. Where `with_gradient`, the logits become scale * (softmax - one_hot), exact 0 where the
/// target is ignored: CrossEntropy and its backward in one pass over device memory.
void CrossEntropyInPlace(const Context& context, const Tensor& losses, const Tensor& logits,
                         const Tensor& targets, std::int64_t ignore_index, double scale,
                         bool with_gradient);

/// The same with the gradient as codes [N, V] in E5M2, contiguous, of logits of float32 or
/// bfloat16, which stay. `scale` includes that of the codes.
void CrossEntropyToCodes(const Context& context, const Tensor& losses, const Tensor& codes,
                         const Tensor& logits, const Tensor& targets, std::int64_t ignore_index,
                         double scale);

}  // namespace infini_train::simt
