#include "infini_train/core/dtype.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

constexpr std::array<std::string_view, kNumDataTypes> kNames = {
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "uint16", "bool"};

constexpr std::pair<std::string_view, DataType> kAliases[] = {{"fp32", DataType::kFloat32},
                                                              {"fp64", DataType::kFloat64},
                                                              {"fp16", DataType::kFloat16},
                                                              {"bf16", DataType::kBFloat16}};

/// The next number towards minus infinity.
template <typename T>
T Previous(T x) {
  if constexpr (sizeof(T) == 2) {
    constexpr std::uint16_t kSign = 0x8000;
    if ((x.bits & ~kSign) == 0) {
      x.bits = kSign | 1;
    } else {
      x.bits = static_cast<std::uint16_t>((x.bits & kSign) != 0 ? x.bits + 1 : x.bits - 1);
    }
    return x;
  } else {
    return std::nextafter(x, -std::numeric_limits<T>::infinity());
  }
}

}  // namespace

std::string_view ToString(DataType dtype) {
  return kNames[static_cast<int>(dtype)];
}

DataType ParseDataType(std::string_view text) {
  for (int i = 0; i < kNumDataTypes; ++i) {
    if (text == kNames[i]) return static_cast<DataType>(i);
  }
  for (const auto& [name, dtype] : kAliases) {
    if (text == name) return dtype;
  }
  throw Error(
      fmt::format("'{}' is no data type; expected one of {}", text, fmt::join(kNames, ", ")));
}

DataType PromoteTypes(DataType a, DataType b) {
  if (a == b) return a;
  // Position in the order bool < uint8 < uint16 < int32 < int64 < half types < float32 < float64.
  constexpr int kRank[kNumDataTypes] = {6, 7, 5, 5, 4, 3, 1, 2, 0};
  const int rank_a = kRank[static_cast<int>(a)];
  const int rank_b = kRank[static_cast<int>(b)];
  if (rank_a == rank_b) return DataType::kFloat32;
  return rank_a > rank_b ? a : b;
}

double LargestBelow(double limit, DataType dtype) {
  return DispatchFloating("LargestBelow", dtype, [&](auto tag) -> double {
    using T = typename decltype(tag)::type;
    const auto rounded = static_cast<T>(static_cast<ComputeType<T>>(limit));
    return static_cast<double>(static_cast<double>(rounded) < limit ? rounded : Previous(rounded));
  });
}

void detail::ThrowUnsupportedDataType(std::string_view what, DataType dtype,
                                      std::string_view expected) {
  throw Error(fmt::format("{}: expected {}, got {}", what, expected, ToString(dtype)));
}

}  // namespace infini_train
