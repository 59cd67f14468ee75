#pragma once

#include <cstdint>

#include "infini_train/core/dtype.h"

namespace infini_train::cpu {

/// Converts `n` contiguous elements between any two types. Floating values become integers by
/// dropping the fraction, saturating, NaN as 0; a wider integer wraps into a narrower one; anything
/// but 0 is true. The half types are reached through float.
void Convert(DataType from, const void* source, DataType to, void* destination, std::int64_t n);

/// Reads `n` elements that are `stride` bytes apart (0 repeats the first) into contiguous elements
/// of another or the same type.
void ReadStrided(DataType from, const void* source, std::int64_t stride, DataType to,
                 void* destination, std::int64_t n);

/// Writes `n` contiguous elements `stride` bytes apart as elements of another or the same type.
void WriteStrided(DataType from, const void* source, DataType to, void* destination,
                  std::int64_t stride, std::int64_t n);

}  // namespace infini_train::cpu
