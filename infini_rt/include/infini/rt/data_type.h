#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <infini/rt/export.h>

namespace infini::rt {

/// Element types. The numbers are stable.
enum class DataType : std::int8_t {
  kInt8 = 0,
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kUInt8 = 4,
  kUInt16 = 5,
  kUInt32 = 6,
  kUInt64 = 7,
  kFloat16 = 8,
  kBFloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
};

inline constexpr int kDataTypeCount = 12;

/// Bytes per element; 0 for a value outside the enum.
constexpr std::size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUInt8:
      return 1;
    case DataType::kInt16:
    case DataType::kUInt16:
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUInt64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

/// The name: "int8", "bfloat16", "float32", ...; "unknown" for a value outside the enum.
INFINI_RT_API std::string_view ToString(DataType type);

/// The type with exactly this name, or `std::nullopt`.
INFINI_RT_API std::optional<DataType> DataTypeFromString(std::string_view name);

}  // namespace infini::rt
