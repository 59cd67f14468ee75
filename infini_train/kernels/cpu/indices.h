#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "infini_train/core/tensor.h"

namespace infini_train::cpu {

/// Throws Error, naming the first value and its row-major position, unless every element of the
/// int64 or int32 tensor is in [0, limit) or is `ignored`. `op` and `what` ("id",
/// "target") begin the message. Kernels call it before they write anything.
void CheckIndices(std::string_view op, std::string_view what, const Tensor& indices,
                  std::int64_t limit, std::optional<std::int64_t> ignored = std::nullopt);

}  // namespace infini_train::cpu
