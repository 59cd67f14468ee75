#pragma once

#include <cstdint>
#include <initializer_list>

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// Vectors that SumParts makes at once, at most.
inline constexpr int kMaxPartSums = 3;

/// The second stage of sums over the rows of data of `dtype`: sums[k] [columns], of dtype or
/// float32, each of them optional, becomes the sum over the parts of row segment k of partials
/// (stat [parts, at least sums.size() * columns]). In float64, in order.
void SumParts(const Context& context, DataType dtype, std::initializer_list<Tensor*> sums,
              const Tensor& partials, std::int64_t columns);

}  // namespace infini_train::simt
