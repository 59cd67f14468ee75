#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/core/scalar.h"

namespace infini_train::simt {

/// A number as another type. Floating values become integers by dropping the fraction, saturating,
/// NaN as 0; a wider integer wraps into a narrower one; anything but 0 is true. The half types are
/// reached through float.
template <typename To, typename From>
SIMT_DEVICE To ConvertNumber(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr auto kLow = static_cast<From>(std::numeric_limits<To>::min());
    // The first power of two out of reach: the largest integer itself may not be a From.
    constexpr From kBeyond = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * From(2);
    const To inside = x > kLow && x < kBeyond ? static_cast<To>(x) : To(0);
    const To above = x >= kBeyond ? std::numeric_limits<To>::max() : inside;
    return x <= kLow ? std::numeric_limits<To>::min() : above;
  } else if constexpr (std::is_same_v<ComputeType<To>, To>) {
    return static_cast<To>(x);
  } else {
    return FromCompute<To>(static_cast<float>(x));
  }
}

/// Writes a number as element `offset` of an array of `dtype`.
template <typename From>
SIMT_DEVICE void StoreNumber(void* array, DataType dtype, std::int64_t offset, From x) {
  switch (dtype) {
    case DataType::kFloat32:
      return Store(static_cast<float*>(array) + offset, ConvertNumber<float>(x));
    case DataType::kFloat64:
      return Store(static_cast<double*>(array) + offset, ConvertNumber<double>(x));
    case DataType::kFloat16:
      return Store(static_cast<Float16*>(array) + offset, ConvertNumber<Float16>(x));
    case DataType::kBFloat16:
      return Store(static_cast<BFloat16*>(array) + offset, ConvertNumber<BFloat16>(x));
    case DataType::kInt64:
      return Store(static_cast<std::int64_t*>(array) + offset, ConvertNumber<std::int64_t>(x));
    case DataType::kInt32:
      return Store(static_cast<std::int32_t*>(array) + offset, ConvertNumber<std::int32_t>(x));
    case DataType::kUInt8:
      return Store(static_cast<std::uint8_t*>(array) + offset, ConvertNumber<std::uint8_t>(x));
    case DataType::kUInt16:
      return Store(static_cast<std::uint16_t*>(array) + offset, ConvertNumber<std::uint16_t>(x));
    case DataType::kBool:
      return Store(static_cast<std::uint8_t*>(array) + offset,
                   static_cast<std::uint8_t>(ConvertNumber<bool>(x)));
  }
}

/// The representation of a number in `dtype`, as an unsigned integer of its size.
template <typename Word>
Word BitsOf(Scalar number, DataType dtype) {
  Word bits = 0;
  DispatchAll("BitsOf", dtype, [&](auto tag) {
    const auto value = number.To<typename decltype(tag)::type>();
    if constexpr (sizeof(value) == sizeof(Word)) std::memcpy(&bits, &value, sizeof(Word));
  });
  return bits;
}

}  // namespace infini_train::simt
