#include "infini_train/kernels/cpu/reduction/reducers.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <type_traits>

namespace infini_train::cpu {
namespace {

struct SumOp {
  template <typename T>
  static constexpr T kIdentity = T(0);
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(b));
    } else {
      return a + b;
    }
  }
};

template <typename T>
constexpr T kLowest = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                  : std::numeric_limits<T>::min();
template <typename T>
constexpr T kHighest = std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity()
                                                   : std::numeric_limits<T>::max();

// A NaN, once in `a`, stays; one in `b` gets in.
struct MaxOp {
  template <typename T>
  static constexpr T kIdentity = kLowest<T>;
  template <typename T>
  static T Apply(T a, T b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};
struct MinOp {
  template <typename T>
  static constexpr T kIdentity = kHighest<T>;
  template <typename T>
  static T Apply(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};

/// The functions of a Reducer for elements T. Blocks are combined in type Partial, then the results
/// in type Accumulator, so that the error of a long sum of floats does not grow with its length.
template <typename Op, typename T, typename Partial, typename Accumulator>
struct Functions {
  static constexpr int kLanes = 256 / sizeof(Partial);
  /// Elements summed in one lane before it is widened.
  static constexpr std::int64_t kLaneLength = 32;

  static void Run(const void* x, std::int64_t n, void* accumulator) {
    const T* data = static_cast<const T*>(x);
    Accumulator total = *static_cast<Accumulator*>(accumulator);
    constexpr std::int64_t kBlock = kLanes * kLaneLength;
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
      const std::int64_t count = std::min(kBlock, n - begin);
      total = Op::template Apply<Accumulator>(total, Block(data + begin, count));
    }
    *static_cast<Accumulator*>(accumulator) = total;
  }

  static Accumulator Block(const T* x, std::int64_t n) {
    Partial lanes[kLanes];
    std::fill_n(lanes, kLanes, Op::template kIdentity<Partial>);
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane)
        lanes[lane] = Op::template Apply<Partial>(lanes[lane], static_cast<Partial>(x[i + lane]));
    }
    for (int lane = 0; i + lane < n; ++lane)
      lanes[lane] = Op::template Apply<Partial>(lanes[lane], static_cast<Partial>(x[i + lane]));
    if (n < kLanes) {
      Accumulator total = static_cast<Accumulator>(lanes[0]);
      for (std::int64_t lane = 1; lane < n; ++lane)
        total = Op::template Apply<Accumulator>(total, static_cast<Accumulator>(lanes[lane]));
      return total;
    }
    Accumulator wide[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
      wide[lane] = static_cast<Accumulator>(lanes[lane]);
    for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma omp simd
      for (int lane = 0; lane < half; ++lane)
        wide[lane] = Op::template Apply<Accumulator>(wide[lane], wide[lane + half]);
    }
    return wide[0];
  }

  static void Rows(const void* x, std::int64_t row_stride, std::int64_t rows, std::int64_t n,
                   void* accumulators) {
    const auto* bytes = static_cast<const std::byte*>(x);
    auto* totals = static_cast<Accumulator*>(accumulators);
    const auto row = [&](std::int64_t i) {
      return reinterpret_cast<const T*>(bytes + i * row_stride);
    };
    Partial partial[kMaxColumns];
    for (std::int64_t begin = 0; begin < rows; begin += kLaneLength) {
      const std::int64_t end = std::min(rows, begin + kLaneLength);
      std::fill_n(partial, n, Op::template kIdentity<Partial>);
      std::int64_t r = begin;
      for (; r + 4 <= end; r += 4) {
        const T* row0 = row(r);
        const T* row1 = row(r + 1);
        const T* row2 = row(r + 2);
        const T* row3 = row(r + 3);
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j) {
          const Partial first = Op::template Apply<Partial>(static_cast<Partial>(row0[j]),
                                                            static_cast<Partial>(row1[j]));
          const Partial second = Op::template Apply<Partial>(static_cast<Partial>(row2[j]),
                                                             static_cast<Partial>(row3[j]));
          partial[j] =
              Op::template Apply<Partial>(partial[j], Op::template Apply<Partial>(first, second));
        }
      }
      for (; r < end; ++r) {
        const T* last = row(r);
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j)
          partial[j] = Op::template Apply<Partial>(partial[j], static_cast<Partial>(last[j]));
      }
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j)
        totals[j] =
            Op::template Apply<Accumulator>(totals[j], static_cast<Accumulator>(partial[j]));
    }
  }

  static void Merge(const void* from, void* into, std::int64_t n) {
    const auto* source = static_cast<const Accumulator*>(from);
    auto* totals = static_cast<Accumulator*>(into);
    for (std::int64_t j = 0; j < n; ++j)
      totals[j] = Op::template Apply<Accumulator>(totals[j], source[j]);
  }
};

template <typename Op, typename T>
constexpr Reducer Make() {
  using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
  using Partial = std::conditional_t<std::is_floating_point_v<T>, T, std::int64_t>;
  using F = Functions<Op, T, Partial, Accumulator>;
  return {DataTypeOf<T>(),
          DataTypeOf<Accumulator>(),
          std::bit_cast<std::uint64_t>(Op::template kIdentity<Accumulator>),
          &F::Run,
          &F::Rows,
          &F::Merge};
}

/// Null where there is none.
template <typename Op, typename... Ts>
const Reducer* Find(DataType compute_dtype) {
  static constexpr Reducer kReducers[] = {Make<Op, Ts>()...};
  for (const Reducer& reducer : kReducers) {
    if (reducer.compute_dtype == compute_dtype) return &reducer;
  }
  return nullptr;
}

}  // namespace

const Reducer& FindReducer(const char* op, ReductionKind kind, DataType dtype) {
  const bool is_bool = dtype == DataType::kBool;
  const DataType compute_dtype = IsFloatingPoint(dtype) && SizeOf(dtype) == 2 ? DataType::kFloat32
                                 : is_bool                                    ? DataType::kUInt8
                                                                              : dtype;
  const Reducer* reducer = nullptr;
  switch (kind) {
    case ReductionKind::kSum:
      reducer = Find<SumOp, float, double, std::int64_t, std::int32_t>(compute_dtype);
      break;
    case ReductionKind::kMax:
      reducer = Find<MaxOp, float, double, std::int64_t, std::int32_t, std::uint8_t, std::uint16_t>(
          compute_dtype);
      break;
    case ReductionKind::kMin:
      reducer = Find<MinOp, float, double, std::int64_t, std::int32_t, std::uint8_t, std::uint16_t>(
          compute_dtype);
      break;
  }
  if (reducer == nullptr) {
    infini_train::detail::ThrowUnsupportedDataType(op, dtype, "a floating type, int64 or int32");
  }
  return *reducer;
}

}  // namespace infini_train::cpu
