#pragma once

#include <cstdint>
#include <unordered_map>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

namespace infini_train {

/// Copies of parameters in autocast's type, made by one op: in a scope on the calling thread,
/// linear layers, the embedding and the head take them instead of converting each parameter when
/// they meet it. The results are the same.
class INFINI_TRAIN_API ParameterCasts {
 public:
  /// Of the contiguous float32 tensors among `parameters`; of none where autocast is off.
  explicit ParameterCasts(TensorList parameters);
  ~ParameterCasts();
  ParameterCasts(const ParameterCasts&) = delete;
  ParameterCasts& operator=(const ParameterCasts&) = delete;

  /// The copy of `x` in `dtype`, without history and not to be written; undefined where there is
  /// none, or x was written since.
  static Tensor Find(const Tensor& x, DataType dtype);

 private:
  struct Entry {
    Tensor copy;
    std::uint64_t version = 0;  ///< of the parameter
  };

  std::unordered_map<const void*, Entry> entries_;  ///< by the parameter's memory
  const ParameterCasts* previous_;
};

}  // namespace infini_train
