#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train {

/// Which samples lie in which row: row i has samples[row_begin[i] ... row_begin[i + 1]), in order.
struct PackedRows {
  std::vector<int64_t> samples;
  std::vector<int64_t> row_begin = {0};

  int64_t size() const { return static_cast<int64_t>(row_begin.size()) - 1; }
  std::span<const int64_t> operator[](int64_t row) const {
    const auto begin = static_cast<size_t>(row_begin[static_cast<size_t>(row)]);
    return std::span(samples).subspan(
        begin, static_cast<size_t>(row_begin[static_cast<size_t>(row) + 1]) - begin);
  }
};

/// Puts samples of these lengths into rows of at most `capacity`, best fit decreasing: the longest
/// first, each into the row with the least room that is enough (Ding et al., "Fewer Truncations
/// Improve Language Modeling", 2024). Samples of a row, and rows, stay in the order of their
/// (first) samples. Throws Error for a length below 1 or above `capacity`.
INFINI_TRAIN_API PackedRows PackBestFit(std::span<const int64_t> lengths, int64_t capacity);

/// One sample in each row, likewise.
INFINI_TRAIN_API PackedRows OneInEachRow(std::span<const int64_t> lengths, int64_t capacity);

}  // namespace infini_train
