#include "infini_train/kernels/cpu/elementwise/convert.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

namespace infini_train::cpu {
namespace {

template <typename To, typename From>
To ConvertOne(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr auto kLow = static_cast<From>(std::numeric_limits<To>::min());
    // The first power of two out of reach: the largest integer itself may not be a From.
    constexpr From kBeyond = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * From(2);
    const To inside = x > kLow && x < kBeyond ? static_cast<To>(x) : To(0);
    const To above = x >= kBeyond ? std::numeric_limits<To>::max() : inside;
    return x <= kLow ? std::numeric_limits<To>::min() : above;
  } else {
    return static_cast<To>(x);
  }
}

using ConvertLoop = void (*)(const void* source, void* destination, std::int64_t n);

template <typename From, typename To>
void Loop(const void* source, void* destination, std::int64_t n) {
  const From* from = static_cast<const From*>(source);
  To* to = static_cast<To*>(destination);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    to[i] = ConvertOne<To>(from[i]);
}

template <typename From>
ConvertLoop LoopFrom(DataType to) {
  switch (to) {
    case DataType::kFloat32:
      return &Loop<From, float>;
    case DataType::kFloat64:
      return &Loop<From, double>;
    case DataType::kInt64:
      return &Loop<From, std::int64_t>;
    case DataType::kInt32:
      return &Loop<From, std::int32_t>;
    case DataType::kUInt8:
      return &Loop<From, std::uint8_t>;
    case DataType::kUInt16:
      return &Loop<From, std::uint16_t>;
    case DataType::kBool:
      return &Loop<From, bool>;
    default:
      return nullptr;
  }
}

/// Null where the way leads through float.
ConvertLoop FindLoop(DataType from, DataType to) {
  switch (from) {
    case DataType::kFloat32:
      if (to == DataType::kFloat16) return &Loop<float, Float16>;
      if (to == DataType::kBFloat16) return &Loop<float, BFloat16>;
      return LoopFrom<float>(to);
    case DataType::kFloat16:
      return to == DataType::kFloat32 ? &Loop<Float16, float> : nullptr;
    case DataType::kBFloat16:
      return to == DataType::kFloat32 ? &Loop<BFloat16, float> : nullptr;
    case DataType::kFloat64:
      return LoopFrom<double>(to);
    case DataType::kInt64:
      return LoopFrom<std::int64_t>(to);
    case DataType::kInt32:
      return LoopFrom<std::int32_t>(to);
    case DataType::kUInt16:
      return LoopFrom<std::uint16_t>(to);
    default:  // A stored bool is a byte of 0 or 1.
      return LoopFrom<std::uint8_t>(to);
  }
}

template <typename T>
void GatherLoop(const std::byte* source, std::int64_t stride, void* destination, std::int64_t n) {
  T* to = static_cast<T*>(destination);
  if (stride == 0) {
    T value;
    std::memcpy(&value, source, sizeof(T));
    std::fill_n(to, n, value);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(to + i, source + i * stride, sizeof(T));
}

template <typename T>
void ScatterLoop(const void* source, std::byte* destination, std::int64_t stride, std::int64_t n) {
  const T* from = static_cast<const T*>(source);
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(destination + i * stride, from + i, sizeof(T));
}

/// Packs elements that are `stride` bytes apart; 0 repeats the first.
void Gather(std::int64_t element_size, const void* source, std::int64_t stride, void* destination,
            std::int64_t n) {
  const auto* from = static_cast<const std::byte*>(source);
  switch (element_size) {
    case 1:
      return GatherLoop<std::uint8_t>(from, stride, destination, n);
    case 2:
      return GatherLoop<std::uint16_t>(from, stride, destination, n);
    case 4:
      return GatherLoop<std::uint32_t>(from, stride, destination, n);
    default:
      return GatherLoop<std::uint64_t>(from, stride, destination, n);
  }
}

/// The inverse of Gather.
void Scatter(std::int64_t element_size, const void* source, void* destination, std::int64_t stride,
             std::int64_t n) {
  auto* to = static_cast<std::byte*>(destination);
  switch (element_size) {
    case 1:
      return ScatterLoop<std::uint8_t>(source, to, stride, n);
    case 2:
      return ScatterLoop<std::uint16_t>(source, to, stride, n);
    case 4:
      return ScatterLoop<std::uint32_t>(source, to, stride, n);
    default:
      return ScatterLoop<std::uint64_t>(source, to, stride, n);
  }
}

/// Elements that pass through the first-level cache at a time.
constexpr std::int64_t kTile = 1024;

}  // namespace

void Convert(DataType from, const void* source, DataType to, void* destination, std::int64_t n) {
  if (from == to) {
    std::memcpy(destination, source, static_cast<std::size_t>(n) * SizeOf(from));
    return;
  }
  if (const ConvertLoop loop = FindLoop(from, to)) {
    loop(source, destination, n);
    return;
  }
  float tile[kTile];
  for (std::int64_t begin = 0; begin < n; begin += kTile) {
    const std::int64_t count = std::min(kTile, n - begin);
    Convert(from,
            static_cast<const std::byte*>(source) + begin * static_cast<std::int64_t>(SizeOf(from)),
            DataType::kFloat32, tile, count);
    Convert(DataType::kFloat32, tile, to,
            static_cast<std::byte*>(destination) + begin * static_cast<std::int64_t>(SizeOf(to)),
            count);
  }
}

void ReadStrided(DataType from, const void* source, std::int64_t stride, DataType to,
                 void* destination, std::int64_t n) {
  const auto from_size = static_cast<std::int64_t>(SizeOf(from));
  const auto to_size = static_cast<std::int64_t>(SizeOf(to));
  if (stride == from_size) return Convert(from, source, to, destination, n);
  if (from == to) return Gather(from_size, source, stride, destination, n);
  alignas(64) std::byte packed[kTile * sizeof(double)];
  for (std::int64_t begin = 0; begin < n; begin += kTile) {
    const std::int64_t count = std::min(kTile, n - begin);
    Gather(from_size, static_cast<const std::byte*>(source) + begin * stride, stride, packed,
           count);
    Convert(from, packed, to, static_cast<std::byte*>(destination) + begin * to_size, count);
  }
}

void WriteStrided(DataType from, const void* source, DataType to, void* destination,
                  std::int64_t stride, std::int64_t n) {
  const auto from_size = static_cast<std::int64_t>(SizeOf(from));
  const auto to_size = static_cast<std::int64_t>(SizeOf(to));
  if (stride == to_size) return Convert(from, source, to, destination, n);
  if (from == to) return Scatter(to_size, source, destination, stride, n);
  alignas(64) std::byte packed[kTile * sizeof(double)];
  for (std::int64_t begin = 0; begin < n; begin += kTile) {
    const std::int64_t count = std::min(kTile, n - begin);
    Convert(from, static_cast<const std::byte*>(source) + begin * from_size, to, packed, count);
    Scatter(to_size, packed, static_cast<std::byte*>(destination) + begin * stride, stride, count);
  }
}

}  // namespace infini_train::cpu
