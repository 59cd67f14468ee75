#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/kernels/cpu/indices.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

void Embedding(const KernelContext&, Tensor& out, const Tensor& weight, const Tensor& ids) {
  CheckIndices("Embedding", "id", ids, weight.size(0));
  if (out.dtype() != weight.dtype()) {
    throw Error(fmt::format("Embedding: expected out of the weight's dtype {}, got {}",
                            ToString(weight.dtype()), ToString(out.dtype())));
  }
  const std::int64_t hidden = weight.size(1);
  const std::int64_t row_bytes = hidden * static_cast<std::int64_t>(SizeOf(weight.dtype()));
  if (row_bytes == 0) return;
  DispatchIndex("Embedding", ids.dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    const I* ids_data = ids.data<I>();
    const auto* source = static_cast<const std::byte*>(weight.raw_data());
    auto* target = static_cast<std::byte*>(out.raw_data());
    ParallelFor(0, ids.numel(), RowGrain(hidden), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::memcpy(target + i * row_bytes, source + ids_data[i] * row_bytes,
                    static_cast<std::size_t>(row_bytes));
      }
    });
  });
}

/// The positions of each id that occurs, in order of position.
struct Groups {
  struct Group {
    std::int64_t id;
    std::int64_t begin;  ///< into `positions`
    std::int64_t end;
  };
  std::vector<Group> groups;
  std::vector<std::int64_t> positions;
};

/// Counting sort, stable.
template <typename I>
Groups GroupById(const I* ids, std::int64_t count, std::int64_t vocabulary_size) {
  Groups result;
  std::vector<std::int64_t> next(static_cast<std::size_t>(vocabulary_size) + 1, 0);
  for (std::int64_t i = 0; i < count; ++i)
    ++next[static_cast<std::size_t>(ids[i])];
  std::int64_t begin = 0;
  for (std::int64_t id = 0; id < vocabulary_size; ++id) {
    const std::int64_t size = next[static_cast<std::size_t>(id)];
    next[static_cast<std::size_t>(id)] = begin;
    if (size > 0) result.groups.push_back({id, begin, begin + size});
    begin += size;
  }
  result.positions.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    result.positions[static_cast<std::size_t>(next[static_cast<std::size_t>(ids[i])]++)] = i;
  return result;
}

/// Threads own columns: each adds its part of every row, in order of position, so that the result
/// depends neither on the number of threads nor on how often an id occurs. Sums of rows of a
/// narrow gradient are rounded once.
template <typename W, typename T>
void AddRows(W* grad_weight, const T* grad_y, const Groups& groups, std::int64_t hidden) {
  using C = ComputeType<W>;
  // A cache line of the narrowest type, so that threads do not share lines.
  constexpr std::int64_t kColumns = 64 / sizeof(W);
  const std::int64_t units = (hidden + kColumns - 1) / kColumns;
  const auto count = static_cast<std::int64_t>(groups.positions.size());
  ParallelFor(0, units, RowGrain(count * kColumns), [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * kColumns;
    const std::int64_t size = std::min(last * kColumns, hidden) - begin;
    std::vector<C> buffer(std::is_same_v<W, C> ? 0 : static_cast<std::size_t>(size));
    for (const auto& group : groups.groups) {
      W* row = grad_weight + group.id * hidden + begin;
      C* sums = nullptr;
      if constexpr (std::is_same_v<W, C>) {
        sums = row;
      } else {
        sums = buffer.data();
        for (std::int64_t i = 0; i < size; ++i)
          sums[i] = C(row[i]);
      }
      for (std::int64_t k = group.begin; k < group.end; ++k) {
        const T* source = grad_y + groups.positions[static_cast<std::size_t>(k)] * hidden + begin;
#pragma omp simd
        for (std::int64_t i = 0; i < size; ++i)
          sums[i] += static_cast<C>(source[i]);
      }
      if constexpr (!std::is_same_v<W, C>) {
#pragma omp simd
        for (std::int64_t i = 0; i < size; ++i)
          Store(row[i], sums[i]);
      }
    }
  });
}

void EmbeddingBackward(const KernelContext&, Tensor& grad_weight, const Tensor& grad_y,
                       const Tensor& ids) {
  const std::int64_t vocabulary_size = grad_weight.size(0);
  const std::int64_t hidden = grad_weight.size(1);
  CheckIndices("EmbeddingBackward", "id", ids, vocabulary_size);
  if (ids.numel() == 0 || hidden == 0) return;
  const Groups groups = DispatchIndex("EmbeddingBackward", ids.dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    return GroupById(ids.data<I>(), ids.numel(), vocabulary_size);
  });
  DispatchFloating("EmbeddingBackward", grad_weight.dtype(), [&](auto weight_tag) {
    using W = typename decltype(weight_tag)::type;
    DispatchFloating("EmbeddingBackward", grad_y.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      AddRows(grad_weight.data<W>(), grad_y.data<T>(), groups, hidden);
    });
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, Embedding, &Embedding);
REGISTER_KERNEL(kCPU, EmbeddingBackward, &EmbeddingBackward);

}  // namespace infini_train::cpu
