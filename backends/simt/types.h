#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"

/// Element types on the host side of a kernel: which an op takes, and their dispatch.
namespace infini_train::simt {

template <typename... Ts>
struct Types {};

template <typename... As, typename... Bs>
constexpr Types<As..., Bs...> Join(Types<As...>, Types<Bs...>) {
  return {};
}

using FloatingTypes = Types<float, double, Float16, BFloat16>;
using SignedTypes = decltype(Join(FloatingTypes{}, Types<std::int64_t, std::int32_t>{}));
using ArithmeticTypes = decltype(Join(SignedTypes{}, Types<std::uint8_t, std::uint16_t>{}));
using AllTypes = decltype(Join(ArithmeticTypes{}, Types<bool>{}));

/// What a kernel sees of an element type: a stored bool is a byte of 0 or 1.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

/// Calls `body(TypeTag<Stored<T>>{})` where `dtype` is one of the types T; throws Error naming the
/// op and its types where it is none.
template <typename... Ts, typename Body>
void DispatchTypes(Types<Ts...>, std::string_view op, DataType dtype, const Body& body) {
  const bool found = ((dtype == DataTypeOf<Ts>() && (body(TypeTag<Stored<Ts>>{}), true)) || ...);
  if (found) return;
  std::string expected;
  ((expected.append(expected.empty() ? "" : ", ").append(ToString(DataTypeOf<Ts>()))), ...);
  infini_train::detail::ThrowUnsupportedDataType(op, dtype, expected);
}

/// Calls `body(TypeTag<Word>{})` for the unsigned integer of an element's size. For kernels that
/// move elements of any type.
template <typename Body>
void DispatchSize(DataType dtype, const Body& body) {
  switch (SizeOf(dtype)) {
    case 1:
      return body(TypeTag<std::uint8_t>{});
    case 2:
      return body(TypeTag<std::uint16_t>{});
    case 4:
      return body(TypeTag<std::uint32_t>{});
    default:
      return body(TypeTag<std::uint64_t>{});
  }
}

/// Throws Error naming the op unless the operand is of `dtype`.
inline void CheckDataType(std::string_view op, const Tensor& operand, DataType dtype) {
  if (operand.dtype() == dtype) return;
  infini_train::detail::ThrowUnsupportedDataType(op, operand.dtype(),
                                                 std::string(ToString(dtype)) + " here");
}

}  // namespace infini_train::simt
