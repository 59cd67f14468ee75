#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "infini_train/kernels/cpu/elementwise/elementwise.h"

/// Loops of element-wise kernels from a function of one element, `Op::Apply`. Iterations are
/// declared independent, which holds also where an output is an input.
namespace infini_train::cpu {

template <typename Op, typename Out, typename In>
void UnaryLoop(std::byte* const* operands, std::int64_t n) {
  auto* out = reinterpret_cast<Out*>(operands[0]);
  const auto* x = reinterpret_cast<const In*>(operands[1]);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<Out>(Op::Apply(x[i]));
}

template <typename Op, typename Out, typename In>
void BinaryLoop(std::byte* const* operands, std::int64_t n) {
  auto* out = reinterpret_cast<Out*>(operands[0]);
  const auto* a = reinterpret_cast<const In*>(operands[1]);
  const auto* b = reinterpret_cast<const In*>(operands[2]);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<Out>(Op::Apply(a[i], b[i]));
}

template <typename Op, typename Out, typename In>
void TernaryLoop(std::byte* const* operands, std::int64_t n) {
  auto* out = reinterpret_cast<Out*>(operands[0]);
  const auto* a = reinterpret_cast<const In*>(operands[1]);
  const auto* b = reinterpret_cast<const In*>(operands[2]);
  const auto* c = reinterpret_cast<const In*>(operands[3]);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<Out>(Op::Apply(a[i], b[i], c[i]));
}

/// What a loop sees of a stored type: bool is a byte of 0 or 1.
template <typename T>
using LoopElement = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

/// Loops from T to T, for each of the types.
template <typename Op, typename... Ts>
constexpr LoopTable UnaryLoops() {
  LoopTable table;
  (table.Set<Ts>(&UnaryLoop<Op, LoopElement<Ts>, LoopElement<Ts>>), ...);
  return table;
}
template <typename Op, typename... Ts>
constexpr LoopTable BinaryLoops() {
  LoopTable table;
  (table.Set<Ts>(&BinaryLoop<Op, LoopElement<Ts>, LoopElement<Ts>>), ...);
  return table;
}
template <typename Op, typename... Ts>
constexpr LoopTable TernaryLoops() {
  LoopTable table;
  (table.Set<Ts>(&TernaryLoop<Op, LoopElement<Ts>, LoopElement<Ts>>), ...);
  return table;
}
/// Loops from two T to bool.
template <typename Op, typename... Ts>
constexpr LoopTable PredicateLoops() {
  LoopTable table;
  (table.Set<Ts>(&BinaryLoop<Op, std::uint8_t, LoopElement<Ts>>), ...);
  return table.SetPredicate();
}

}  // namespace infini_train::cpu
