#include "native/cpu/memory/allocation_table.h"

#include <cstdlib>
#include <mutex>

namespace infini::rt::cpu {
namespace {

constexpr std::size_t kAlignment = 256;

}  // namespace

void* AllocateAligned(std::size_t size) {
  if (size > SIZE_MAX - kAlignment) return nullptr;
  return std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
}

void AllocationTable::Insert(const Allocation& allocation) {
  std::unique_lock lock(mutex_);
  allocations_.insert_or_assign(allocation.base, allocation);
}

std::optional<Allocation> AllocationTable::Remove(const void* ptr) {
  std::unique_lock lock(mutex_);
  auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(ptr));
  if (found == allocations_.end()) return std::nullopt;
  Allocation allocation = found->second;
  allocations_.erase(found);
  return allocation;
}

std::optional<Allocation> AllocationTable::Find(const void* ptr) const {
  auto address = reinterpret_cast<std::uintptr_t>(ptr);
  std::shared_lock lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return std::nullopt;
  const Allocation& allocation = std::prev(after)->second;
  if (address - allocation.base >= allocation.size) return std::nullopt;
  return allocation;
}

}  // namespace infini::rt::cpu
