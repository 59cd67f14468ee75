#pragma once

/// Global and shared memory in device languages that have CUDA's keywords. The platform has defined
/// the atomic functions of global memory, and `detail::DynamicSharedBytes()`.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace infini_train::simt {

namespace detail {

struct alignas(8) Words2 {
  unsigned x, y;
};
struct alignas(16) Words4 {
  unsigned x, y, z, w;
};

/// The type in which the compiler moves so many bytes by one instruction.
template <std::size_t kBytes>
using RawOf = std::conditional_t<
    kBytes == 16, Words4,
    std::conditional_t<
        kBytes == 8, Words2,
        std::conditional_t<kBytes == 4, unsigned,
                           std::conditional_t<kBytes == 2, unsigned short, unsigned char>>>>;

template <int N, typename T>
SIMT_DEVICE inline Vec<T, N> LoadVector(const T* pointer) {
  using Raw = RawOf<sizeof(Vec<T, N>)>;
  static_assert(sizeof(Raw) == sizeof(Vec<T, N>));
  const Raw raw = *reinterpret_cast<const Raw*>(pointer);
  Vec<T, N> result;
  memcpy(static_cast<void*>(&result), &raw, sizeof(result));
  return result;
}
template <typename T, int N>
SIMT_DEVICE inline void StoreVector(T* pointer, const Vec<T, N>& value) {
  using Raw = RawOf<sizeof(Vec<T, N>)>;
  static_assert(sizeof(Raw) == sizeof(value));
  Raw raw;
  memcpy(&raw, &value, sizeof(raw));
  *reinterpret_cast<Raw*>(pointer) = raw;
}

}  // namespace detail

template <typename T>
SIMT_DEVICE inline T Load(const T* pointer, Place = {}) {
  return *pointer;
}
template <typename T>
SIMT_DEVICE inline void Store(T* pointer, std::type_identity_t<T> value, Place = {}) {
  *pointer = value;
}
template <int N, typename T>
SIMT_DEVICE inline Vec<T, N> Load(const T* pointer, Place = {}) {
  return detail::LoadVector<N>(pointer);
}
template <typename T, int N>
SIMT_DEVICE inline void Store(T* pointer, const Vec<T, N>& value, Place = {}) {
  detail::StoreVector(pointer, value);
}

/// What a kernel that begins early reads before WaitForEarlier(), for the emulator, which finds
/// those that touch anything else.
template <typename T>
SIMT_DEVICE inline void ReadsEarly(const T*, std::int64_t) {}

/// A view of shared memory.
template <typename T>
class Shared {
 public:
  Shared() = default;
  SIMT_DEVICE Shared(T* data, std::int64_t size) : data_(data), size_(size) {}

  SIMT_DEVICE std::int64_t size() const { return size_; }
  SIMT_DEVICE T& operator[](std::int64_t i) const { return data_[i]; }
  template <int N>
  SIMT_DEVICE Vec<T, N> Load(std::int64_t i, Place = {}) const {
    return detail::LoadVector<N>(data_ + i);
  }
  template <int N>
  SIMT_DEVICE void Store(std::int64_t i, const Vec<T, N>& value, Place = {}) const {
    detail::StoreVector(data_ + i, value);
  }
  SIMT_DEVICE Shared Sub(std::int64_t offset, std::int64_t count, Place = {}) const {
    return Shared(data_ + offset, count);
  }
  template <typename U>
  SIMT_DEVICE Shared<U> As(Place = {}) const {
    return Shared<U>(reinterpret_cast<U*>(data_), size_ * static_cast<std::int64_t>(sizeof(T)) /
                                                      static_cast<std::int64_t>(sizeof(U)));
  }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

// Elements of shared memory have the atomic functions of global memory.
template <typename T>
SIMT_DEVICE inline T AtomicAdd(Shared<T> shared, std::int64_t i, std::type_identity_t<T> value,
                               Place = {}) {
  return AtomicAdd(&shared[i], value);
}
template <typename T>
SIMT_DEVICE inline T AtomicMax(Shared<T> shared, std::int64_t i, std::type_identity_t<T> value,
                               Place = {}) {
  return AtomicMax(&shared[i], value);
}
template <typename T>
SIMT_DEVICE inline T AtomicCas(Shared<T> shared, std::int64_t i, std::type_identity_t<T> expected,
                               std::type_identity_t<T> desired, Place = {}) {
  return AtomicCas(&shared[i], expected, desired);
}

// Bytes, as element types may have constructors, which shared memory does not run.
#define SIMT_SHARED(T, name, count)                                               \
  __shared__ __align__(16) unsigned char simt_shared_##name[sizeof(T) * (count)]; \
  const ::infini_train::simt::Shared<T> name(reinterpret_cast<T*>(simt_shared_##name), count)

#define SIMT_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char simt_dynamic_shared[]; \
  const ::infini_train::simt::Shared<T> name(                          \
      reinterpret_cast<T*>(simt_dynamic_shared),                       \
      ::infini_train::simt::detail::DynamicSharedBytes() / static_cast<std::int64_t>(sizeof(T)))

}  // namespace infini_train::simt
