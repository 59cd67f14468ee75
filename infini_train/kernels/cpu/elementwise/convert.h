#pragma once

#include <cstdint>

#include "infini_train/core/dtype.h"

namespace infini_train::cpu {

/// Converts `n` contiguous elements between any two types. Floating values become integers by
/// dropping the fraction, saturating, NaN as 0; a wider integer wraps into a narrower one; anything
/// but 0 is true. The half types are reached through float.
void Convert(DataType from, const void* source, DataType to, void* destination, std::int64_t n);

/// Packs `n` elements of `element_size` bytes that are `stride` bytes apart (0 repeats the first).
void Gather(std::int64_t element_size, const void* source, std::int64_t stride, void* destination,
            std::int64_t n);

/// Spreads `n` contiguous elements of `element_size` bytes `stride` bytes apart.
void Scatter(std::int64_t element_size, const void* source, void* destination, std::int64_t stride,
             std::int64_t n);

}  // namespace infini_train::cpu
