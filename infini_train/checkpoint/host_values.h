#pragma once

#include <cstddef>
#include <vector>

#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"

namespace infini_train::checkpoint {

/// The elements of a tensor, of any device and layout, in row-major order as `dtype` holds them.
/// They are converted on the host, a tensor at a time. Throws Error unless the types are equal or
/// both floating.
std::vector<std::byte> HostValues(const Tensor& tensor, DataType dtype);

}  // namespace infini_train::checkpoint
