#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/simt/packed.h"
#include "backends/simt/rows.h"

namespace infini_train::simt {

/// Vectors of a row that one lane keeps in registers; what a longer row has beyond them is read
/// again.
template <int N>
inline constexpr int kCachedVectors = N == 1       ? 4
                                      : 32 / N < 8 ? 32 / N
                                                   : 8;

/// Rows up to this size are kept in a group's registers.
template <int N>
inline constexpr std::int64_t kMaxCachedGroupRow =
    std::int64_t{GroupTeam::kLanes} * kCachedVectors<N>* N;

/// Weight or bias of a norm over elements of type T, in the type that sums run in: stored as T, as
/// float, or not at all and then one value everywhere.
template <typename T>
struct NormParameter {
  using C = ComputeType<T>;
  const T* same;
  const float* single;
  C absent;

  static NormParameter Of(const Tensor& tensor, double absent) {
    NormParameter parameter{nullptr, nullptr, static_cast<C>(absent)};
    if (!tensor.defined()) return parameter;
    if (tensor.dtype() == DataTypeOf<T>()) {
      parameter.same = tensor.data<T>();
    } else {
      parameter.single = tensor.data<float>();
    }
    return parameter;
  }

  template <int N>
  SIMT_DEVICE void Read(std::int64_t i, C (&values)[N]) const {
    constexpr int kSingles = N < kMaxVectorWidth<float> ? N : kMaxVectorWidth<float>;
    if (same != nullptr) {
      const Vec<T, N> stored = Load<N>(same + i);
      for (int k = 0; k < N; ++k)
        values[k] = ToCompute(stored[k]);
    } else if (single != nullptr) {
      for (int first = 0; first < N; first += kSingles) {
        const Vec<float, kSingles> stored = Load<kSingles>(single + i + first);
        for (int k = 0; k < kSingles; ++k)
          values[first + k] = stored[k];
      }
    } else {
      for (int k = 0; k < N; ++k)
        values[k] = absent;
    }
  }
};

/// A row of which this lane holds the vectors Lane(), Lane() + Size(), ...; the first ones in
/// registers.
template <typename Team, typename T, int N>
struct CachedRow {
  static constexpr int kCached = kCachedVectors<N>;
  const T* row;
  std::int64_t vectors;
  Packed<T, N> cache[kCached];

  SIMT_DEVICE CachedRow(const T* row, std::int64_t size) : row(row), vectors(size / N) {
    SIMT_UNROLL
    for (int k = 0; k < kCached; ++k) {
      const std::int64_t v = Team::Lane() + std::int64_t{k} * Team::Size();
      if (v < vectors) cache[k] = Packed<T, N>::Of(row + v * N);
    }
  }

  /// The row x + residual, which is written to `sum` on the way.
  SIMT_DEVICE static CachedRow OfSum(const T* x, const T* residual, T* sum, std::int64_t size) {
    CachedRow result(sum, size / N, Uncached{});
    Packed<T, N> residuals[kCached];
    SIMT_UNROLL
    for (int k = 0; k < kCached; ++k) {
      const std::int64_t v = Team::Lane() + std::int64_t{k} * Team::Size();
      if (v >= result.vectors) continue;
      result.cache[k] = Packed<T, N>::Of(x + v * N);
      residuals[k] = Packed<T, N>::Of(residual + v * N);
    }
    SIMT_UNROLL
    for (int k = 0; k < kCached; ++k) {
      const std::int64_t v = Team::Lane() + std::int64_t{k} * Team::Size();
      if (v >= result.vectors) continue;
      const Vec<T, N> total = Add(result.cache[k].Unpack(), residuals[k].Unpack());
      Store(sum + v * N, total);
      result.cache[k] = Packed<T, N>(total);
    }
    for (std::int64_t v = Team::Lane() + std::int64_t{kCached} * Team::Size(); v < result.vectors;
         v += Team::Size())
      Store(sum + v * N, Add(Load<N>(x + v * N), Load<N>(residual + v * N)));
    return result;
  }

  /// Calls `body(i, vector)` for this lane's vectors, which begin at element i.
  template <typename Body>
  SIMT_DEVICE void ForEach(Body& body) const {
    SIMT_UNROLL
    for (int k = 0; k < kCached; ++k) {
      const std::int64_t v = Team::Lane() + std::int64_t{k} * Team::Size();
      if (v < vectors) body(v * N, cache[k].Unpack());
    }
    for (std::int64_t v = Team::Lane() + std::int64_t{kCached} * Team::Size(); v < vectors;
         v += Team::Size())
      body(v * N, Load<N>(row + v * N));
  }

 private:
  struct Uncached {};
  SIMT_DEVICE CachedRow(const T* row, std::int64_t vectors, Uncached)
      : row(row), vectors(vectors) {}

  SIMT_DEVICE static Vec<T, N> Add(const Vec<T, N>& a, const Vec<T, N>& b) {
    Vec<T, N> sum;
    for (int k = 0; k < N; ++k)
      sum[k] = FromCompute<T>(ToCompute(a[k]) + ToCompute(b[k]));
    return sum;
  }
};

/// The elements of an optional tensor.
template <typename T>
T* DataOf(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

/// More lanes would leave each too few registers.
inline constexpr int kMaxRowLanes = 256;

/// Whether rows of `hidden` elements may be read in full vectors where every array of the row and
/// of the parameters begins at one of `arrays`.
template <typename T>
bool HasVectorRows(std::int64_t hidden, std::initializer_list<const Tensor*> arrays) {
  return hidden % kMaxVectorWidth<T> == 0 &&
         std::all_of(arrays.begin(), arrays.end(), [](const Tensor* array) {
           return !array->defined() ||
                  reinterpret_cast<std::uintptr_t>(array->raw_data()) % kMaxVectorBytes == 0;
         });
}

/// Chooses team and vector width for HasVectorRows' rows, and calls `body(TypeTag<Team>{},
/// std::integral_constant<int, N>{}, lanes)` with the lanes of a BlockTeam.
template <typename T, typename Body>
void DispatchNormRows(std::int64_t hidden, std::initializer_list<const Tensor*> arrays,
                      Body&& body) {
  const auto choose = [&]<int N>(std::integral_constant<int, N> width) {
    if (hidden <= kMaxCachedGroupRow<N>) {
      body(TypeTag<GroupTeam>{}, width, GroupTeam::kLanes);
    } else {
      int lanes = 128;
      while (lanes < kMaxRowLanes && lanes * kCachedVectors<N> * N < hidden)
        lanes *= 2;
      body(TypeTag<BlockTeam>{}, width, lanes);
    }
  };
  if (HasVectorRows<T>(hidden, arrays)) {
    choose(std::integral_constant<int, kMaxVectorWidth<T>>{});
  } else {
    choose(std::integral_constant<int, 1>{});
  }
}

}  // namespace infini_train::simt
