#pragma once

#include <cstdint>

#include "backends/simt/kernels/index/entries.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// Rows of entries in scratch memory: entry i of row r is data[r * length + i].
template <typename E>
struct EntryRows {
  Tensor memory;
  std::int64_t rows = 0;
  std::int64_t length = 0;

  static EntryRows Empty(const Context& context, std::int64_t rows, std::int64_t length) {
    constexpr auto kWords = static_cast<std::int64_t>(sizeof(E) / sizeof(std::int64_t));
    return {Tensor::Empty({rows, length, kWords}, DataType::kInt64, context.device), rows, length};
  }
  E* data() const { return static_cast<E*>(memory.raw_data()); }
};

/// Sorts each row of `entries`, whose memory it uses. Rows of any length and number.
template <typename E>
EntryRows<E> SortEntries(const Context& context, EntryRows<E> entries);

/// values and indices [rows, k] are the first k of each row of x [rows, length], in ascending order
/// or, where `descending`, descending; equal ones in order of position.
void SortFirst(const Context& context, Tensor& values, Tensor& indices, const Tensor& x,
               bool descending);

}  // namespace infini_train::simt
