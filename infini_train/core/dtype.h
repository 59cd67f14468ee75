#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "infini_train/core/api.h"
#include "infini_train/core/half.h"

namespace infini_train {

/// Element type of a tensor.
enum class DataType : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kUInt8,
  kUInt16,
  kBool,
};

inline constexpr int kNumDataTypes = 9;

/// Bytes per element.
constexpr std::size_t SizeOf(DataType dtype) {
  constexpr std::size_t kSizes[kNumDataTypes] = {4, 8, 2, 2, 8, 4, 1, 2, 1};
  return kSizes[static_cast<int>(dtype)];
}

constexpr bool IsFloatingPoint(DataType dtype) {
  return static_cast<int>(dtype) <= static_cast<int>(DataType::kBFloat16);
}

/// "float32", "bfloat16", "int64", "bool", …
INFINI_TRAIN_API std::string_view ToString(DataType dtype);

/// The inverse of ToString; also takes "fp32", "bf16", "fp16". Throws Error on anything else,
/// naming the known types.
INFINI_TRAIN_API DataType ParseDataType(std::string_view text);

/// The type in which two operands meet, as in PyTorch: a floating type beats an integer one, a
/// wider one a narrower one, float16 with bfloat16 gives float32, bool gives way to everything.
INFINI_TRAIN_API DataType PromoteTypes(DataType a, DataType b);

/// The largest number of a floating type that is less than `limit`, a number.
INFINI_TRAIN_API double LargestBelow(double limit, DataType dtype);

/// C++ element type to DataType. uint16_t is kUInt16; the half types are Float16 and BFloat16.
template <typename T>
constexpr DataType DataTypeOf();
// clang-format off
template <> constexpr DataType DataTypeOf<float>() { return DataType::kFloat32; }
template <> constexpr DataType DataTypeOf<double>() { return DataType::kFloat64; }
template <> constexpr DataType DataTypeOf<Float16>() { return DataType::kFloat16; }
template <> constexpr DataType DataTypeOf<BFloat16>() { return DataType::kBFloat16; }
template <> constexpr DataType DataTypeOf<std::int64_t>() { return DataType::kInt64; }
template <> constexpr DataType DataTypeOf<std::int32_t>() { return DataType::kInt32; }
template <> constexpr DataType DataTypeOf<std::uint8_t>() { return DataType::kUInt8; }
template <> constexpr DataType DataTypeOf<std::uint16_t>() { return DataType::kUInt16; }
template <> constexpr DataType DataTypeOf<bool>() { return DataType::kBool; }
// clang-format on

/// Carries an element type through a generic lambda: `using T = typename decltype(tag)::type`.
template <typename T>
struct TypeTag {
  using type = T;
};

namespace detail {
/// Throws Error: `what` does not take `dtype`, it takes `expected`.
[[noreturn]] INFINI_TRAIN_API void ThrowUnsupportedDataType(std::string_view what, DataType dtype,
                                                            std::string_view expected);
}  // namespace detail

/// Calls `body(TypeTag<T>{})` for the floating type `dtype`; throws Error naming `what` for others.
template <typename Body>
decltype(auto) DispatchFloating(std::string_view what, DataType dtype, Body&& body) {
  switch (dtype) {
    case DataType::kFloat32:
      return body(TypeTag<float>{});
    case DataType::kFloat64:
      return body(TypeTag<double>{});
    case DataType::kFloat16:
      return body(TypeTag<Float16>{});
    case DataType::kBFloat16:
      return body(TypeTag<BFloat16>{});
    default:
      detail::ThrowUnsupportedDataType(what, dtype, "a floating type");
  }
}

/// Calls `body(TypeTag<T>{})` for any data type.
template <typename Body>
decltype(auto) DispatchAll(std::string_view what, DataType dtype, Body&& body) {
  switch (dtype) {
    case DataType::kInt64:
      return body(TypeTag<std::int64_t>{});
    case DataType::kInt32:
      return body(TypeTag<std::int32_t>{});
    case DataType::kUInt8:
      return body(TypeTag<std::uint8_t>{});
    case DataType::kUInt16:
      return body(TypeTag<std::uint16_t>{});
    case DataType::kBool:
      return body(TypeTag<bool>{});
    default:
      return DispatchFloating(what, dtype, std::forward<Body>(body));
  }
}

/// Calls `body(TypeTag<T>{})` for int64 and int32, the types of indices and token ids.
template <typename Body>
decltype(auto) DispatchIndex(std::string_view what, DataType dtype, Body&& body) {
  switch (dtype) {
    case DataType::kInt64:
      return body(TypeTag<std::int64_t>{});
    case DataType::kInt32:
      return body(TypeTag<std::int32_t>{});
    default:
      detail::ThrowUnsupportedDataType(what, dtype, "int64 or int32");
  }
}

/// The type in which sums over T run: float for the half types and float, else T itself.
template <typename T>
struct ComputeTypeOf {
  using type = T;
};
template <>
struct ComputeTypeOf<Float16> {
  using type = float;
};
template <>
struct ComputeTypeOf<BFloat16> {
  using type = float;
};
template <typename T>
using ComputeType = typename ComputeTypeOf<T>::type;

}  // namespace infini_train
