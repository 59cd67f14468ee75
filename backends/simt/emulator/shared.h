#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backends/simt/emulator/language.h"

#include "backends/simt/emulator/lane.h"
#include "backends/simt/emulator/memory.h"
#include "backends/simt/vector.h"

namespace infini_train::simt {
namespace emulator {

enum class AccessKind : std::uint8_t { kRead, kWrite, kAtomic };

/// The block's static array that `tag` identifies, the same for all lanes.
std::byte* StaticShared(const char* tag, const char* name, std::size_t bytes, const Place& place);

struct DynamicSharedMemory {
  std::byte* data;
  std::size_t bytes;
};
DynamicSharedMemory DynamicShared();

/// Throws the fault of an access to `count` elements from `index` on, which `name` does not have.
[[noreturn]] void ThrowOutOfShared(const char* name, std::int64_t index, std::int64_t count,
                                   std::int64_t size, const Place& place);
[[noreturn]] void ThrowMisalignedShared(const char* name, std::int64_t index, std::int64_t count,
                                        const Place& place);

/// Notes an access in race mode; throws if another lane's is not ordered with it.
void RecordSharedAccess(AccessKind kind, const void* address, std::size_t bytes, const char* name,
                        const Place& place);

/// An index and where it was written.
struct SharedIndex {
  template <typename I>
  requires(std::convertible_to<I, std::int64_t> && !std::floating_point<I>)
      SharedIndex(I i, Place p = Place::current())  // NOLINT(google-explicit-constructor)
      : value(static_cast<std::int64_t>(i)), place(p) {}

  std::int64_t value;
  Place place;
};

}  // namespace emulator

/// A view of shared memory whose accesses are checked. `s[i]` stands for an element: it converts to
/// T and can be assigned to, but does not outlive the expression.
template <typename T>
class Shared {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  class Reference {
   public:
    operator T() const {  // NOLINT(google-explicit-constructor): stands for an element
      Note(emulator::AccessKind::kRead);
      return *element_;
    }
    const Reference& operator=(const T& value) const {
      Note(emulator::AccessKind::kWrite);
      *element_ = value;
      return *this;
    }
    const Reference& operator=(const Reference& other) const { return *this = T(other); }
    const Reference& operator+=(const T& value) const { return *this = T(T(*this) + value); }
    const Reference& operator-=(const T& value) const { return *this = T(T(*this) - value); }
    const Reference& operator*=(const T& value) const { return *this = T(T(*this) * value); }

    Reference(const Reference&) = default;

   private:
    friend class Shared;
    Reference(T* element, const char* name, const Place& place)
        : element_(element), name_(name), place_(place) {}

    void Note(emulator::AccessKind kind) const {
      if (emulator::lane.check_races) [[unlikely]]
        emulator::RecordSharedAccess(kind, element_, sizeof(T), name_, place_);
    }

    T* element_;
    const char* name_;
    Place place_;
  };

  Shared() = default;
  Shared(std::byte* data, std::int64_t size, const char* name)
      : data_(reinterpret_cast<T*>(data)), size_(size), name_(name) {}

  std::int64_t size() const { return size_; }

  Reference operator[](emulator::SharedIndex index) const {
    Check(index.value, 1, index.place);
    return Reference(data_ + index.value, name_, index.place);
  }

  /// N elements from index i on, a multiple of N, at once.
  template <int N>
  Vec<T, N> Load(std::int64_t i, Place place = Place::current()) const {
    CheckVector<N>(i, place);
    if (emulator::lane.check_races) [[unlikely]]
      emulator::RecordSharedAccess(emulator::AccessKind::kRead, data_ + i, N * sizeof(T), name_,
                                   place);
    Vec<T, N> result;
    std::memcpy(static_cast<void*>(&result), data_ + i, sizeof(result));
    return result;
  }

  template <int N>
  void Store(std::int64_t i, const Vec<T, N>& value, Place place = Place::current()) const {
    CheckVector<N>(i, place);
    if (emulator::lane.check_races) [[unlikely]]
      emulator::RecordSharedAccess(emulator::AccessKind::kWrite, data_ + i, N * sizeof(T), name_,
                                   place);
    std::memcpy(static_cast<void*>(data_ + i), &value, sizeof(value));
  }

  /// `count` elements from `offset` on.
  Shared Sub(std::int64_t offset, std::int64_t count, Place place = Place::current()) const {
    Check(offset, count, place);
    Shared result = *this;
    result.data_ += offset;
    result.size_ = count;
    return result;
  }

  /// The same bytes as elements of another type.
  template <typename U>
  Shared<U> As(Place place = Place::current()) const {
    const auto bytes = static_cast<std::size_t>(size_) * sizeof(T);
    if (reinterpret_cast<std::uintptr_t>(data_) % alignof(U) != 0)
      emulator::ThrowMisalignedShared(name_, 0, 1, place);
    return Shared<U>(reinterpret_cast<std::byte*>(data_),
                     static_cast<std::int64_t>(bytes / sizeof(U)), name_);
  }

  /// The element for an atomic function.
  T* AtomicElement(std::int64_t i, const Place& place) const {
    Check(i, 1, place);
    if (emulator::lane.check_races) [[unlikely]]
      emulator::RecordSharedAccess(emulator::AccessKind::kAtomic, data_ + i, sizeof(T), name_,
                                   place);
    return data_ + i;
  }

 private:
  void Check(std::int64_t i, std::int64_t count, const Place& place) const {
    if (i < 0 || count < 0 || i > size_ - count) [[unlikely]]
      emulator::ThrowOutOfShared(name_, i, count, size_, place);
  }

  template <int N>
  void CheckVector(std::int64_t i, const Place& place) const {
    static_assert(sizeof(Vec<T, N>) <= kMaxVectorBytes, "one access moves at most 16 bytes");
    Check(i, N, place);
    if (reinterpret_cast<std::uintptr_t>(data_ + i) % sizeof(Vec<T, N>) != 0) [[unlikely]]
      emulator::ThrowMisalignedShared(name_, i, N, place);
  }

  T* data_ = nullptr;
  std::int64_t size_ = 0;
  const char* name_ = "";
};

/// Shared memory has the atomic functions of global memory, on an element: the lanes of a block run
/// on one thread.
template <typename T>
requires emulator::kIsAtomic<T>
inline T AtomicAdd(Shared<T> shared, std::int64_t i, std::type_identity_t<T> value,
                   Place place = Place::current()) {
  T* element = shared.AtomicElement(i, place);
  const T found = *element;
  *element = found + value;
  return found;
}

template <typename T>
requires std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>
inline T AtomicMax(Shared<T> shared, std::int64_t i, std::type_identity_t<T> value,
                   Place place = Place::current()) {
  T* element = shared.AtomicElement(i, place);
  const T found = *element;
  if (found < value) *element = value;
  return found;
}

template <typename T>
requires std::same_as<T, std::uint32_t> || std::same_as<T, std::uint64_t>
inline T AtomicCas(Shared<T> shared, std::int64_t i, std::type_identity_t<T> expected,
                   std::type_identity_t<T> desired, Place place = Place::current()) {
  T* element = shared.AtomicElement(i, place);
  const T found = *element;
  if (found == expected) *element = desired;
  return found;
}

/// Whether a lane goes on while CopyAsync()'s elements are under way. Where it waits for them, a
/// kernel may read to registers ahead of use instead.
inline constexpr bool kCopiesAreAsync = true;

/// Copies N elements from global to shared memory, where the lane that asked may read them after it
/// has waited, and other lanes after a barrier behind that.
template <int N, typename T>
inline void CopyAsync(const Shared<T>& to, std::int64_t i, const T* from,
                      Place place = Place::current()) {
  to.Store(i, Load<N>(from, place), place);
}
/// Makes one group of a lane's copies since the last call.
inline void CommitCopies() {}
/// Waits for all groups of the lane's copies but the last kPending.
template <int kPending>
inline void WaitForCopies() {}

/// Static shared memory of the block, in a kernel's or a device function's body. Two calls of one
/// function see the same array.
#define SIMT_SHARED(T, name, count)                                                             \
  static char simt_shared_tag_##name;                                                           \
  const ::infini_train::simt::Shared<T> name(                                                   \
      ::infini_train::simt::emulator::StaticShared(&simt_shared_tag_##name, #name,              \
                                                   sizeof(T) * static_cast<std::size_t>(count), \
                                                   ::infini_train::simt::Place::current()),     \
      count, #name)

/// All dynamic shared memory of the launch as elements of T.
#define SIMT_DYNAMIC_SHARED(T, name)                                                    \
  const ::infini_train::simt::Shared<T> name(                                           \
      ::infini_train::simt::emulator::DynamicShared().data,                             \
      static_cast<std::int64_t>(::infini_train::simt::emulator::DynamicShared().bytes / \
                                sizeof(T)),                                             \
      #name)

}  // namespace infini_train::simt
