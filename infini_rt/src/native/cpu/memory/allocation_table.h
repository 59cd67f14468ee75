#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>

namespace infini::rt::cpu {

class DeviceState;
struct GraphAllocation;

/// Memory aligned as device memory is (256 bytes); null if the system has none. Free with
/// `std::free`.
void* AllocateAligned(std::size_t size);

enum class MemoryKind : std::uint8_t { kDevice, kPool, kGraph, kMapped, kPinned };

struct Allocation {
  std::uintptr_t base = 0;
  std::size_t size = 0;
  MemoryKind kind = MemoryKind::kDevice;
  DeviceState* device = nullptr;     // null for pinned memory
  GraphAllocation* graph = nullptr;  // kGraph only
  std::size_t pool_capacity = 0;     // kPool only

  /// Bytes from `ptr`, which lies inside, to the end.
  std::size_t BytesFrom(const void* ptr) const {
    return base + size - reinterpret_cast<std::uintptr_t>(ptr);
  }
};

/// Every live allocation of the runtime by address: what tells device memory from pinned and from
/// ordinary host memory, and bad frees and overruns from good calls.
class AllocationTable {
 public:
  void Insert(const Allocation& allocation);
  /// Removes and returns the allocation that begins at `ptr`.
  std::optional<Allocation> Remove(const void* ptr);
  /// The allocation that `ptr` points into.
  std::optional<Allocation> Find(const void* ptr) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, Allocation> allocations_;
};

}  // namespace infini::rt::cpu
