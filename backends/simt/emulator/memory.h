#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backends/simt/emulator/language.h"

#include "backends/simt/emulator/early.h"
#include "backends/simt/emulator/lane.h"
#include "backends/simt/vector.h"

namespace infini_train::simt {
namespace emulator {

/// Throws the fault of an access to global memory through `address`, which is null or no multiple
/// of `alignment`.
[[noreturn]] void ThrowBadAddress(const void* address, std::size_t alignment, const Place& place);

inline void CheckAddress(const void* address, std::size_t alignment, const Place& place) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (value == 0 || (value & (alignment - 1)) != 0) [[unlikely]]
    ThrowBadAddress(address, alignment, place);
}

inline void CountRead(const void* address, std::size_t bytes, const Place& place) {
  if (lane.early) [[unlikely]]
    CheckEarlyRead(address, bytes, place);
  lane.bytes_read += bytes;
}

inline void CountWrite(std::size_t bytes, const Place& place) {
  if (lane.early) [[unlikely]]
    ThrowEarlyWrite(place);
  lane.bytes_written += bytes;
}

template <typename T>
inline constexpr bool kIsAtomic = std::same_as<T, std::int32_t> || std::same_as<T, std::uint32_t> ||
                                  std::same_as<T, std::int64_t> || std::same_as<T, std::uint64_t> ||
                                  std::same_as<T, float> || std::same_as<T, double>;

}  // namespace emulator

/// Reads one element of global memory.
template <typename T>
inline T Load(const T* pointer, Place place = Place::current()) {
  emulator::CheckAddress(pointer, alignof(T), place);
  emulator::CountRead(pointer, sizeof(T), place);
  return *pointer;
}

/// Writes one element of global memory.
template <typename T>
inline void Store(T* pointer, std::type_identity_t<T> value, Place place = Place::current()) {
  emulator::CheckAddress(pointer, alignof(T), place);
  emulator::CountWrite(sizeof(T), place);
  *pointer = value;
}

/// Reads N elements at once. The address is a multiple of their size together.
template <int N, typename T>
inline Vec<T, N> Load(const T* pointer, Place place = Place::current()) {
  static_assert(sizeof(Vec<T, N>) <= kMaxVectorBytes, "one access moves at most 16 bytes");
  emulator::CheckAddress(pointer, sizeof(Vec<T, N>), place);
  emulator::CountRead(pointer, sizeof(Vec<T, N>), place);
  Vec<T, N> result;
  std::memcpy(static_cast<void*>(&result), pointer, sizeof(result));
  return result;
}

/// Writes N elements at once. The address is a multiple of their size together.
template <typename T, int N>
inline void Store(T* pointer, const Vec<T, N>& value, Place place = Place::current()) {
  static_assert(sizeof(Vec<T, N>) <= kMaxVectorBytes, "one access moves at most 16 bytes");
  emulator::CheckAddress(pointer, sizeof(Vec<T, N>), place);
  emulator::CountWrite(sizeof(Vec<T, N>), place);
  std::memcpy(static_cast<void*>(pointer), &value, sizeof(value));
}

/// Asks for the line of global memory around an element, so that it is near when it is read.
template <typename T>
inline void BringNear(const T* pointer, Place place = Place::current()) {
  emulator::CheckAddress(pointer, alignof(T), place);
  if (emulator::lane.early) [[unlikely]]
    emulator::CheckEarlyRead(pointer, sizeof(T), place);
}

/// Adds to an element of global memory and returns what was there.
template <typename T>
requires emulator::kIsAtomic<T>
inline T AtomicAdd(T* pointer, std::type_identity_t<T> value, Place place = Place::current()) {
  emulator::CheckAddress(pointer, alignof(T), place);
  emulator::CountRead(pointer, sizeof(T), place);
  emulator::CountWrite(sizeof(T), place);
  return std::atomic_ref<T>(*pointer).fetch_add(value, std::memory_order_relaxed);
}

/// Replaces an element of global memory by the larger of it and `value`; returns what was there.
template <typename T>
requires std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>
inline T AtomicMax(T* pointer, std::type_identity_t<T> value, Place place = Place::current()) {
  emulator::CheckAddress(pointer, alignof(T), place);
  emulator::CountRead(pointer, sizeof(T), place);
  emulator::CountWrite(sizeof(T), place);
  std::atomic_ref<T> element(*pointer);
  T found = element.load(std::memory_order_relaxed);
  while (found < value && !element.compare_exchange_weak(found, value, std::memory_order_relaxed)) {
  }
  return found;
}

/// Writes `desired` to an element of global memory if `expected` is there; returns what was there.
template <typename T>
requires std::same_as<T, std::uint32_t> || std::same_as<T, std::uint64_t>
inline T AtomicCas(T* pointer, std::type_identity_t<T> expected, std::type_identity_t<T> desired,
                   Place place = Place::current()) {
  emulator::CheckAddress(pointer, alignof(T), place);
  emulator::CountRead(pointer, sizeof(T), place);
  emulator::CountWrite(sizeof(T), place);
  std::atomic_ref<T>(*pointer).compare_exchange_strong(expected, desired,
                                                       std::memory_order_relaxed);
  return expected;
}

}  // namespace infini_train::simt
