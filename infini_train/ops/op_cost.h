#pragma once

#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {

/// The arguments of a call that say how much work it is. Points to them.
struct OpArguments {
  std::vector<const Tensor*> tensors;  ///< all but those in lists, in their order; may be undefined
  std::vector<TensorList> lists;       ///< that are read
  std::vector<TensorList> updated;     ///< that are read and written
  std::vector<bool> switches;
  const AttentionParams* attention = nullptr;
};

/// The least that a call can do.
struct OpCost {
  /// Each input read once, each output written once; what is updated in place counts twice.
  double bytes = 0.0;
  /// Multiplications and additions of matrix products and attention; 0 for other ops. Of products
  /// by groups as if every row were in one: how many are stands on the device.
  double flops = 0.0;
};

INFINI_TRAIN_API OpCost CostOf(OpId id, const OpArguments& arguments);

/// "bfloat16 [64, 768], [64, 3072], [3072, 768]^T, float32 [768]": dtypes where they change; ^T
/// where rows lie together along the second last dimension.
INFINI_TRAIN_API std::string DescribeTensors(const OpArguments& arguments);

namespace detail {

inline void Collect(OpArguments& found, const Tensor& tensor) {
  found.tensors.push_back(&tensor);
}
inline void Collect(OpArguments& found, TensorList tensors) {
  found.lists.push_back(tensors);
}
inline void Collect(OpArguments& found, MutableTensorList tensors) {
  found.updated.emplace_back(tensors);
}
inline void Collect(OpArguments& found, const AttentionParams& params) {
  found.attention = &params;
}
template <typename T>
void Collect(OpArguments& found, const T& value) {
  if constexpr (std::is_same_v<T, bool>) found.switches.push_back(value);
}

template <typename... Arguments>
OpArguments CollectArguments(const Arguments&... arguments) {
  OpArguments found;
  (Collect(found, arguments), ...);
  return found;
}

}  // namespace detail
}  // namespace infini_train
