#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/index/row_sort.h"
#include "backends/simt/strided.h"

/// Indices that name places along a dimension, sorted: entries of one key are the elements that
/// meet in one place, in order of position. This is how scattering gets an order without atomics.
namespace infini_train::simt {

/// Lines along the dimension: offsets of the first element of each in out, index and src.
struct Lines {
  StridedIndex<3> starts;
  std::int64_t out_stride;  ///< along the dimension
  std::int64_t index_stride;
  std::int64_t src_stride;
  std::int64_t length;  ///< of the index along the dimension
  std::int64_t limit;   ///< extent of out along it
};

/// The key of an index outside [0, limit): behind all others.
template <typename E>
inline constexpr EntryKey<E> kOutside = static_cast<EntryKey<E>>(~EntryKey<E>{0});

/// Entries hold positions below `length` and keys below `limit`.
inline bool FitsNarrowEntries(std::int64_t length, std::int64_t limit) {
  return length < kMaxNarrowLength && limit < kMaxNarrowLength - 1;
}

template <typename E, typename I>
SIMT_KERNEL void IndexEntriesKernel(E* entries, const I* index, Lines lines) {
  const std::int64_t count = lines.starts.numel * lines.length;
  for (std::int64_t g = GlobalThreadIndex(); g < count; g += GlobalThreadCount()) {
    std::int64_t starts[3];
    const std::int64_t line = g / lines.length;
    const std::int64_t position = g - line * lines.length;
    lines.starts.Locate(line, starts);
    const std::int64_t place = Load(index + starts[1] + position * lines.index_stride);
    const bool inside = place >= 0 && place < lines.limit;
    Store(entries + g,
          MakeEntry<E>(inside ? static_cast<EntryKey<E>>(place) : kOutside<E>, position));
  }
}

/// The index's entries, each line sorted.
template <typename E>
EntryRows<E> SortedIndex(const char* op, const Context& context, const Tensor& index,
                         const Lines& lines) {
  auto entries = EntryRows<E>::Empty(context, lines.starts.numel, lines.length);
  DispatchIndex(op, index.dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    Launch(context, Linear(lines.starts.numel * lines.length), &IndexEntriesKernel<E, I>,
           entries.data(), index.data<I>(), lines);
  });
  return SortEntries(context, entries);
}

}  // namespace infini_train::simt
