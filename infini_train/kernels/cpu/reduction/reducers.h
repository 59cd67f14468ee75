#pragma once

#include <cstdint>

#include "infini_train/core/dtype.h"

namespace infini_train::cpu {

/// One of the ways to combine elements, on one compute type (elementwise.h). Accumulators are 8
/// bytes: double for floating types, int64 for integers.
struct Reducer {
  /// The type of the elements that the functions read.
  DataType compute_dtype;
  /// kFloat64 or kInt64.
  DataType accumulator_dtype;
  /// The accumulator of no elements: the bits of a double or an int64.
  std::uint64_t identity;
  /// Combines `n` contiguous elements into one accumulator.
  void (*run)(const void* x, std::int64_t n, void* accumulator);
  /// Combines `rows` rows of `n` contiguous elements (at most kMaxColumns), `row_stride` bytes
  /// apart, into `n` accumulators, column by column.
  void (*rows)(const void* x, std::int64_t row_stride, std::int64_t rows, std::int64_t n,
               void* accumulators);
  /// Combines `n` accumulators into others.
  void (*merge)(const void* from, void* into, std::int64_t n);
};

/// The widest strip of columns that Reducer::rows takes.
inline constexpr std::int64_t kMaxColumns = 512;

enum class ReductionKind { kSum, kMax, kMin };

/// Throws Error naming the op when the kind does not take the type.
const Reducer& FindReducer(const char* op, ReductionKind kind, DataType dtype);

}  // namespace infini_train::cpu
