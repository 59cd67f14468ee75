#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "infini_train/core/dtype.h"

/// What is sorted: a key above a position in its row. Entries of one row differ, so that any way of
/// sorting them is stable.
namespace infini_train::simt {

/// A 32-bit key and a 32-bit position.
using NarrowEntry = std::uint64_t;

struct alignas(16) WideEntry {
  std::uint64_t key;
  std::uint64_t position;
};

/// Positions below this fit a NarrowEntry.
inline constexpr std::int64_t kMaxNarrowLength = std::int64_t{1} << 32;

template <typename E>
using EntryKey = std::conditional_t<std::is_same_v<E, NarrowEntry>, std::uint32_t, std::uint64_t>;

template <typename E>
SIMT_DEVICE E MakeEntry(EntryKey<E> key, std::int64_t position) {
  if constexpr (std::is_same_v<E, NarrowEntry>) {
    return std::uint64_t{key} << 32 | static_cast<std::uint64_t>(position);
  } else {
    return {key, static_cast<std::uint64_t>(position)};
  }
}

SIMT_DEVICE inline std::uint32_t KeyOf(NarrowEntry entry) {
  return static_cast<std::uint32_t>(entry >> 32);
}
SIMT_DEVICE inline std::uint64_t KeyOf(const WideEntry& entry) {
  return entry.key;
}

SIMT_DEVICE inline std::int64_t PositionOf(NarrowEntry entry) {
  return static_cast<std::int64_t>(entry & 0xFFFFFFFFu);
}
SIMT_DEVICE inline std::int64_t PositionOf(const WideEntry& entry) {
  return static_cast<std::int64_t>(entry.position);
}

SIMT_DEVICE inline bool Precedes(NarrowEntry a, NarrowEntry b) {
  return a < b;
}
SIMT_DEVICE inline bool Precedes(const WideEntry& a, const WideEntry& b) {
  return a.key != b.key ? a.key < b.key : a.position < b.position;
}

/// Numbers as unsigned integers of the same order; -0 is 0, NaN the largest.
SIMT_DEVICE inline std::uint32_t SortKey(float x) {
  if (x != x) return std::numeric_limits<std::uint32_t>::max();
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
SIMT_DEVICE inline std::uint64_t SortKey(double x) {
  if (x != x) return std::numeric_limits<std::uint64_t>::max();
  const auto bits = std::bit_cast<std::uint64_t>(x + 0.0);
  return bits >> 63 != 0 ? ~bits : bits | std::uint64_t{1} << 63;
}
SIMT_DEVICE inline std::uint32_t SortKey(std::int32_t x) {
  return static_cast<std::uint32_t>(x) ^ 0x80000000u;
}
SIMT_DEVICE inline std::uint64_t SortKey(std::int64_t x) {
  return static_cast<std::uint64_t>(x) ^ std::uint64_t{1} << 63;
}

/// The key of element i of an array whose type is known on the device only: one branch that all
/// lanes take alike, for fewer kernels. 64-bit types need a WideEntry.
template <typename E>
SIMT_DEVICE EntryKey<E> LoadKey(const void* data, DataType dtype, std::int64_t i) {
  switch (dtype) {
    case DataType::kFloat32:
      return SortKey(Load(static_cast<const float*>(data) + i));
    case DataType::kFloat16:
      return SortKey(ToCompute(Load(static_cast<const Float16*>(data) + i)));
    case DataType::kBFloat16:
      return SortKey(ToCompute(Load(static_cast<const BFloat16*>(data) + i)));
    case DataType::kInt32:
      return SortKey(Load(static_cast<const std::int32_t*>(data) + i));
    case DataType::kUInt16:
      return Load(static_cast<const std::uint16_t*>(data) + i);
    case DataType::kUInt8:
    case DataType::kBool:
      return Load(static_cast<const std::uint8_t*>(data) + i);
    default:
      if constexpr (std::is_same_v<E, WideEntry>) {
        return dtype == DataType::kFloat64
                   ? SortKey(Load(static_cast<const double*>(data) + i))
                   : SortKey(Load(static_cast<const std::int64_t*>(data) + i));
      } else {
        return 0;
      }
  }
}

}  // namespace infini_train::simt
