#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "backends/simt/packed.h"
#include "backends/simt/rows.h"

namespace infini_train::simt {

/// Vectors of a row that one lane keeps in registers, at most; what a longer row has beyond them is
/// read again.
template <int N>
inline constexpr int kCachedVectors = N == 1       ? 4
                                      : 32 / N < 8 ? 32 / N
                                                   : 8;

/// Kernels exist for each multiple of this number of vectors.
template <int N>
inline constexpr int kCachedStep = N == 1 ? kCachedVectors<N> : kCachedVectors<N> / 4;

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
      Packed<T, N>::Of(same + i).Widen(values);
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

/// Where in a row the lane's vector k begins, of those that are Size() apart.
template <typename Team, int N>
SIMT_DEVICE inline std::int64_t PlaceOfVector(int k) {
  return std::int64_t{Team::Lane() * N} + k * Team::Size() * N;
}

/// A row of which this lane holds the vectors Lane(), Lane() + Size(), ...; the first kVectors of
/// them as numbers in registers. It has all of these but those of the last step for certain.
template <typename RowTeam, typename T, int N, int kVectors>
class CachedRow {
 public:
  using Team = RowTeam;
  using Element = T;
  using C = ComputeType<T>;
  static constexpr int kWidth = N;

  SIMT_DEVICE CachedRow(const T* row, std::int64_t size) : row_(row), vectors_(size / N) {
    Packed<T, N> words[kVectors];
    Read(words, row);
    SIMT_UNROLL
    for (int k = 0; k < kVectors; ++k)
      words[k].Widen(numbers_[k]);
  }

  /// The row x + residual, which is written to `sum` on the way.
  SIMT_DEVICE CachedRow(const T* x, const T* residual, T* sum, std::int64_t size)
      : row_(sum), vectors_(size / N) {
    Packed<T, N> words[kVectors], residuals[kVectors];
    Read(words, x);
    Read(residuals, residual);
    SIMT_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      const Packed<T, N> total = Add(words[k], residuals[k]);
      if (Has(k)) total.Store(sum + Index(k));
      total.Widen(numbers_[k]);
    }
    ForEachUncached([&](std::int64_t i) {
      Add(Packed<T, N>::Of(x + i), Packed<T, N>::Of(residual + i)).Store(sum + i);
    });
  }

  /// Calls `body(i, numbers)` for this lane's vectors, which begin at element i.
  template <typename Body>
  SIMT_DEVICE void ForEach(const Body& body) const {
    SIMT_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      if (Has(k)) body(Index(k), numbers_[k]);
    }
    ForEachUncached([&](std::int64_t i) {
      C numbers[N];
      Packed<T, N>::Of(row_ + i).Widen(numbers);
      body(i, numbers);
    });
  }

 private:
  SIMT_DEVICE static std::int64_t Index(int k) { return PlaceOfVector<Team, N>(k); }
  SIMT_DEVICE bool Has(int k) const {
    return k < kVectors - kCachedStep<N> || Team::Lane() + k * Team::Size() < vectors_;
  }

  SIMT_DEVICE void Read(Packed<T, N> (&words)[kVectors], const T* from) const {
    SIMT_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      if (Has(k)) words[k] = Packed<T, N>::Of(from + Index(k));
    }
  }

  SIMT_DEVICE static Packed<T, N> Add(const Packed<T, N>& a, const Packed<T, N>& b) {
    C sum[N], other[N];
    a.Widen(sum);
    b.Widen(other);
    SIMT_UNROLL
    for (int k = 0; k < N; ++k)
      sum[k] += other[k];
    return Packed<T, N>::Narrow(sum);
  }

  /// Groups have rows without such vectors only.
  template <typename Body>
  SIMT_DEVICE void ForEachUncached(const Body& body) const {
    if constexpr (std::is_same_v<Team, BlockTeam> && kVectors == kCachedVectors<N>) {
      for (std::int64_t v = Team::Lane() + std::int64_t{kVectors} * Team::Size(); v < vectors_;
           v += Team::Size())
        body(v * N);
    }
  }

  const T* row_;
  std::int64_t vectors_;
  C numbers_[kVectors][N];
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

/// Calls `body(std::integral_constant<int, kVectors>{})` for rows of `vectors` over so many lanes:
/// with the least number for which a CachedRow leaves nothing to read again, or the largest.
template <int N, typename Body>
void DispatchCachedVectors(std::int64_t vectors, int lanes, const Body& body) {
  constexpr int kStep = kCachedStep<N>;
  constexpr int kSteps = kCachedVectors<N> / kStep;
  const std::int64_t needed = (vectors + lanes * kStep - 1) / (lanes * kStep);
  const auto steps = static_cast<int>(std::clamp<std::int64_t>(needed, 1, kSteps));
  [&]<int... kBefore>(std::integer_sequence<int, kBefore...>) {
    ((steps == kBefore + 1 && (body(std::integral_constant<int, (kBefore + 1) * kStep>{}), true)) ||
     ...);
  }
  (std::make_integer_sequence<int, kSteps>{});
}

/// Chooses team, vector width and cached vectors for HasVectorRows' rows, and calls
/// `body(TypeTag<CachedRow<...>>{}, lanes)` with the lanes of a BlockTeam.
template <typename T, typename Body>
void DispatchNormRows(std::int64_t hidden, std::initializer_list<const Tensor*> arrays,
                      const Body& body) {
  const auto choose = [&]<int N, typename Team>(std::integral_constant<int, N>, TypeTag<Team>,
                                                int lanes) {
    DispatchCachedVectors<N>(hidden / N, lanes,
                             [&]<int kVectors>(std::integral_constant<int, kVectors>) {
                               body(TypeTag<CachedRow<Team, T, N, kVectors>>{}, lanes);
                             });
  };
  const auto choose_team = [&]<int N>(std::integral_constant<int, N> width) {
    if (hidden <= kMaxCachedGroupRow<N>) {
      choose(width, TypeTag<GroupTeam>{}, GroupTeam::kLanes);
    } else {
      int lanes = 128;
      while (lanes < kMaxRowLanes && lanes * kCachedVectors<N> * N < hidden)
        lanes *= 2;
      choose(width, TypeTag<BlockTeam>{}, lanes);
    }
  };
  if (HasVectorRows<T>(hidden, arrays)) {
    choose_team(std::integral_constant<int, kMaxVectorWidth<T>>{});
  } else {
    choose_team(std::integral_constant<int, 1>{});
  }
}

}  // namespace infini_train::simt
