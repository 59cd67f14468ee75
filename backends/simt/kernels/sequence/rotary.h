#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "backends/simt/dialect.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// kWidth neighbouring numbers, which may be more than one access moves.
template <int kWidth, typename C>
SIMT_DEVICE void LoadNumbers(C (&numbers)[kWidth], const C* from) {
  constexpr int kStep = kWidth < kMaxVectorWidth<C> ? kWidth : kMaxVectorWidth<C>;
  SIMT_UNROLL
  for (int first = 0; first < kWidth; first += kStep) {
    const Vec<C, kStep> part = Load<kStep>(from + first);
    SIMT_UNROLL
    for (int k = 0; k < kStep; ++k)
      numbers[first + k] = part[k];
  }
}

/// Throws Error unless the last stride of each is 1.
inline void CheckRotaryStrides(
    const char* op, std::initializer_list<std::pair<const char*, const Tensor*>> tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor->size(-1) > 1 && tensor->strides().back() != 1) {
      throw Error(std::string(op) + ": expected last stride 1 of " + name + ", got strides " +
                  tensor->strides().ToString());
    }
  }
}

/// Whether `pairs` elements of all heads (of T) and angles (of its ComputeType) may be read in the
/// widest vectors of T.
template <typename T>
bool HasRotaryVectors(std::int64_t pairs, std::initializer_list<const Tensor*> heads,
                      std::initializer_list<const Tensor*> angles) {
  const auto has = [](const Tensor* tensor, int width, auto tag) {
    const Dims& strides = tensor->strides();
    return VectorWidth(tensor->data<typename decltype(tag)::type>()) >= width &&
           std::all_of(strides.begin(), strides.end() - 1,
                       [width](std::int64_t stride) { return stride % width == 0; });
  };
  using C = ComputeType<T>;
  return pairs % kMaxVectorWidth<T> == 0 &&
         std::all_of(heads.begin(), heads.end(),
                     [&](const Tensor* x) { return has(x, kMaxVectorWidth<T>, TypeTag<T>{}); }) &&
         std::all_of(angles.begin(), angles.end(),
                     [&](const Tensor* x) { return has(x, kMaxVectorWidth<C>, TypeTag<C>{}); });
}

}  // namespace infini_train::simt
