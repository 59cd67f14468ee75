#include "infini_train/kernels/cpu/gemm/skinny.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "infini_train/kernels/cpu/gemm/scratch.h"
#include "infini_train/kernels/cpu/gemm/simd.h"
#include "infini_train/kernels/cpu/parallel.h"

namespace infini_train::cpu {
namespace {

using simd::kLanes;
using simd::Vector;

// sums [rows][columns] = a [rows, depth] times `columns` contiguous columns of b, `stride` apart.
template <typename T, typename S, int rows, int columns>
void Dot(std::int64_t depth, const T* a, const S* b, std::int64_t stride, T* sums) {
  constexpr int kN = kLanes<T>;
  Vector<T> parts[rows][columns] = {};
  std::int64_t k = 0;
  for (; k + kN <= depth; k += kN) {
    Vector<T> row[rows];
#pragma GCC unroll 4
    for (int i = 0; i < rows; ++i)
      row[i] = simd::Load<T>(a + i * depth + k);
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      const Vector<T> column = simd::Load<T>(b + j * stride + k);
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i)
        parts[i][j] += row[i] * column;
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      T sum = simd::Sum<T>(parts[i][j]);
      for (std::int64_t rest = k; rest < depth; ++rest)
        sum += a[i * depth + rest] * static_cast<T>(b[j * stride + rest]);
      sums[i * columns + j] = sum;
    }
  }
}

// sums [rows][vectors * kLanes] = a [rows, depth] times as many columns of a row-major b.
template <typename T, typename S, int rows, int vectors>
void Combine(std::int64_t depth, const T* a, const S* b, std::int64_t stride, T* sums) {
  constexpr int kN = kLanes<T>;
  Vector<T> parts[rows][vectors] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      const Vector<T> columns = simd::Load<T>(b + k * stride + j * kN);
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i)
        parts[i][j] += a[i * depth + k] * columns;
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j)
      simd::Store(sums + (i * vectors + j) * kN, parts[i][j]);
  }
}

template <typename T, typename S, typename O, int rows>
class SkinnyGemm {
 public:
  SkinnyGemm(const GemmProblem& problem, O* c, const T* a, const S* b, const S* bias)
      : problem_(problem), c_(c), a_(a), b_(b), bias_(bias) {}

  void Run() const {
    constexpr std::int64_t kGrain = 32 * 1024;
    constexpr std::int64_t kGroup = 4 * kLanes<T>;
    const std::int64_t groups = (problem_.n + kGroup - 1) / kGroup;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (kGroup * (problem_.k + 1)));
    ParallelFor(0, groups, grain, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t last = std::min(end * kGroup, problem_.n);
      if (problem_.b.row == 1) {
        std::int64_t j = begin * kGroup;
        for (; j + 4 <= last; j += 4)
          DotColumns<4>(j);
        for (; j < last; ++j)
          DotColumns<1>(j);
      } else {
        std::int64_t j = begin * kGroup;
        for (; j + kGroup <= last; j += kGroup)
          CombineColumns<4>(j);
        for (; j + kLanes<T> <= last; j += kLanes<T>)
          CombineColumns<1>(j);
        for (; j < last; ++j)
          OneColumn(j);
      }
    });
  }

 private:
  template <int columns>
  void DotColumns(std::int64_t j) const {
    T sums[rows * columns];
    Dot<T, S, rows, columns>(problem_.k, a_, b_ + j * problem_.b.column, problem_.b.column, sums);
    Finish(sums, j, columns);
  }

  template <int vectors>
  void CombineColumns(std::int64_t j) const {
    T sums[rows * vectors * kLanes<T>];
    Combine<T, S, rows, vectors>(problem_.k, a_, b_ + j, problem_.b.row, sums);
    Finish(sums, j, vectors * kLanes<T>);
  }

  void OneColumn(std::int64_t j) const {
    T sums[rows] = {};
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      for (int i = 0; i < rows; ++i)
        sums[i] += a_[i * problem_.k + k] * static_cast<T>(b_[k * problem_.b.row + j]);
    }
    Finish(sums, j, 1);
  }

  void Finish(const T* sums, std::int64_t column, int columns) const {
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        O& out = c_[i * problem_.c.row + (column + j) * problem_.c.column];
        T value = sums[i * columns + j];
        if (bias_ != nullptr) value += static_cast<T>(bias_[column + j]);
        if (problem_.accumulate) value += static_cast<T>(out);
        out = static_cast<O>(value);
      }
    }
  }

  const GemmProblem& problem_;
  O* c_;
  const T* a_;
  const S* b_;
  const S* bias_;
};

template <typename T, typename S, typename O>
void RunTyped(const GemmProblem& problem, O* c, const S* a, const S* b, const S* bias) {
  static thread_local Scratch scratch;
  T* rows = scratch.Get<T>(static_cast<std::size_t>(problem.m * problem.k));
  for (std::int64_t i = 0; i < problem.m; ++i) {
    for (std::int64_t k = 0; k < problem.k; ++k)
      rows[i * problem.k + k] = static_cast<T>(a[i * problem.a.row + k * problem.a.column]);
  }
  switch (problem.m) {
    case 1:
      return SkinnyGemm<T, S, O, 1>(problem, c, rows, b, bias).Run();
    case 2:
      return SkinnyGemm<T, S, O, 2>(problem, c, rows, b, bias).Run();
    case 3:
      return SkinnyGemm<T, S, O, 3>(problem, c, rows, b, bias).Run();
    default:
      return SkinnyGemm<T, S, O, 4>(problem, c, rows, b, bias).Run();
  }
}

}  // namespace

void RunSkinnyGemm(const GemmProblem& problem, void* c, const void* a, const void* b,
                   const void* bias) {
  DispatchFloating("Gemm", problem.input, [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = ComputeType<S>;
    const S* typed_a = static_cast<const S*>(a);
    const S* typed_b = static_cast<const S*>(b);
    const S* typed_bias = static_cast<const S*>(bias);
    if (problem.output == problem.input) {
      RunTyped<T, S, S>(problem, static_cast<S*>(c), typed_a, typed_b, typed_bias);
    } else if constexpr (!std::is_same_v<S, double>) {
      RunTyped<T, S, float>(problem, static_cast<float*>(c), typed_a, typed_b, typed_bias);
    }
  });
}

}  // namespace infini_train::cpu
