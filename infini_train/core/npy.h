#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

namespace infini_train {

/// Writes a tensor of any device in NumPy's .npy format (version 1.0, row-major), atomically.
/// bfloat16, which NumPy does not have, is written as float32. Throws Error naming the file.
INFINI_TRAIN_API void SaveNpy(const std::string& path, const Tensor& tensor);

/// Reads a .npy file (format versions 1.0 to 3.0) into a row-major host tensor. Takes both byte
/// orders, both element orders, and the element types that DataType has; a byte other than 0 is
/// true. Throws Error with the file and what was found there for anything else, including a file
/// longer or shorter than its header says.
INFINI_TRAIN_API Tensor LoadNpy(const std::string& path);

/// Reads the content of a .npy file. `name` stands for the file in messages.
INFINI_TRAIN_API Tensor ParseNpy(std::span<const std::byte> content, std::string_view name);

}  // namespace infini_train
