// What a CachingAllocator asks of the provider and gives back.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <utility>

#include "infini_train/core/device/caching_allocator.h"

namespace infini_train::allocator {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// The granularity of segments: what device runtimes round to anyway.
constexpr std::size_t kDeviceSegmentUnit = 2 * kMiB;
constexpr std::size_t kHostSegmentUnit = std::size_t{64} << 10;

constinit std::atomic<bool> expandable_segments{true};

/// Bytes that serve a request without anything being mapped.
std::size_t FreeBytes(const Block* block) {
  return block != nullptr && block->is_free && block->is_mapped ? block->size : 0;
}

}  // namespace

void SetExpandableSegments(bool enabled) noexcept {
  expandable_segments = enabled;
}

bool ExpandableSegmentsEnabled() noexcept {
  return expandable_segments;
}

/// A block of at least `size` bytes, in no list. Throws when there is no memory for it.
Block* CachingAllocator::TakeFromProvider(Pool& pool, int size_class, std::size_t size,
                                          std::size_t bytes) {
  const std::size_t exact = RoundUp(size, is_host_ ? kHostSegmentUnit : kDeviceSegmentUnit);
  const std::size_t segment = std::max(exact, kSizeClasses[size_class].segment);
  const DeviceGuard guard(device_);
  if (is_host_) TrimHost(segment, size);
  const auto take = [&] {
    return HasExpandableSegment(pool, size_class) ? Expand(pool, size_class, size)
                                                  : NewSegment(pool, size_class, segment);
  };
  Block* block = take();
  if (block == nullptr) {
    ProcessEvents(/*wait=*/true);
    ReleaseSegments(SIZE_MAX);
    block = take();
  }
  if (block == nullptr) block = NewSegment(pool, size_class, exact);
  if (block == nullptr) ThrowOutOfMemory(bytes);
  return block;
}

/// The one block of a segment; null when out of memory.
Block* CachingAllocator::NewSegment(Pool& pool, int size_class, std::size_t bytes) {
  void* pointer = impl_.Allocate(bytes);
  if (pointer == nullptr) return nullptr;
  auto* block = new Block;
  block->pointer = static_cast<std::byte*>(pointer);
  block->size = bytes;
  block->pool = &pool;
  block->size_class = size_class;
  blocks_.emplace(pointer, block);
  ++stats_.provider_allocations;
  CountReserved(pool, static_cast<std::ptrdiff_t>(bytes));
  return block;
}

/// Whether blocks of the class come from an ExpandableSegment, which the pool then has.
bool CachingAllocator::HasExpandableSegment(Pool& pool, int size_class) {
  if (size_class != kLargeClass || pool.owner != nullptr || is_host_ || !may_expand_ ||
      !ExpandableSegmentsEnabled()) {
    return false;
  }
  if (pool.expandable != nullptr) return true;
  granularity_ = impl_.MappingGranularity();
  may_expand_ = std::has_single_bit(granularity_);
  if (!may_expand_) return false;
  // Addresses cost nothing; holes between blocks take some.
  const std::size_t size =
      RoundUp(2 * impl_.Properties(device_.index()).total_memory, granularity_);
  void* pointer = impl_.ReserveAddresses(size);
  if (pointer == nullptr) return may_expand_ = false;
  pool.expandable = std::make_unique<ExpandableSegment>();
  pool.expandable->pointer = static_cast<std::byte*>(pointer);
  pool.expandable->size = size;
  auto* block = new Block;
  block->pointer = pool.expandable->pointer;
  block->size = size;
  block->pool = &pool;
  block->size_class = size_class;
  block->is_expandable = true;
  block->is_mapped = false;
  blocks_.emplace(block->pointer, block);
  pool.expandable->unmapped.Insert(block);
  return true;
}

/// Maps memory beside free blocks, where the least is missing, so that `size` bytes are free in one
/// piece; null when out of memory.
Block* CachingAllocator::Expand(Pool& pool, int size_class, std::size_t size) {
  FreeLists& free = pool.free[size_class];
  FreeLists& unmapped = pool.expandable->unmapped;
  // Blocks that others have used may have come back.
  if (Block* block = free.TakeBestFit(size)) return block;
  Block* gap = nullptr;
  std::size_t missing = 0;
  unmapped.ForEach([&](Block* block) {
    const std::size_t before = FreeBytes(block->previous);
    const std::size_t after = FreeBytes(block->next);
    if (before + block->size + after < size) return;
    const std::size_t bytes =
        std::min(block->size, RoundUp(size - std::max(before, after), granularity_));
    if (gap != nullptr && (bytes > missing || (bytes == missing && block->pointer > gap->pointer)))
      return;
    gap = block;
    missing = bytes;
  });
  if (gap == nullptr) return nullptr;
  unmapped.Remove(gap);
  Block* part = gap;
  if (missing < gap->size) {
    const bool at_end = FreeBytes(gap->next) > FreeBytes(gap->previous);
    Block* rest = Cut(gap, at_end ? gap->size - missing : missing);
    if (at_end) std::swap(part, rest);
    unmapped.Insert(rest);
  }
  try {
    part->is_mapped = impl_.MapMemory(part->pointer, part->size);
  } catch (...) {
    Coalesce(part);
    throw;
  }
  if (part->is_mapped) {
    ++stats_.provider_allocations;
    CountReserved(pool, static_cast<std::ptrdiff_t>(part->size));
  }
  Coalesce(part);
  return free.TakeBestFit(size);
}

/// Unused segments go before a new one makes the process much larger than tensors ever needed. The
/// slack keeps a repeating sequence of requests from trading the same segments again and again:
/// clearing fresh pages can cost as much as the work on them.
void CachingAllocator::TrimHost(std::size_t segment, std::size_t size) {
  const std::size_t needed = std::max(highest_allocated_, stats_.allocated + size);
  const std::size_t budget = needed + needed / 8 + 128 * kMiB;
  if (stats_.reserved + segment > budget) ReleaseSegments(stats_.reserved + segment - budget);
}

/// Gives unused segments, and unused pages of those that expand, back to the provider, small ones
/// first, until `bytes` are returned. While work is captured the device cannot be waited for, but
/// the default stream can.
void CachingAllocator::ReleaseSegments(std::size_t bytes) {
  const DeviceGuard guard(device_);
  const bool is_captured = private_scopes_ > 0;
  bool idle = is_host_;
  std::size_t released = 0;
  for (const auto& pool : pools_) {
    if (pool->owner != nullptr || (is_captured && pool->stream != nullptr)) continue;
    FlushQuickLists(*pool);
    for (FreeLists& free : pool->free) {
      free.ForEach([&](Block* block) {
        if (released >= bytes) return;
        const std::size_t returned = block->IsWholeSegment() ? block->size : WholePages(block).size;
        if (returned == 0) return;
        if (!idle) {  // Its last use may still be on its way.
          is_captured ? impl_.SynchronizeStream(pool->stream) : impl_.SynchronizeDevice();
        }
        idle = true;
        released += returned;
        free.Remove(block);
        block->is_expandable ? UnmapPages(block) : GiveBack(block);
      });
    }
    ReleaseExpandableSegment(*pool);
  }
}

/// Returns a segment whose block is in no list, on the current device.
void CachingAllocator::GiveBack(Block* block) {
  impl_.Free(block->pointer);
  CountReserved(*block->pool, -static_cast<std::ptrdiff_t>(block->size));
  blocks_.erase(block->pointer);
  delete block;
}

/// The memory of a block of an ExpandableSegment that no other block has a part of.
CachingAllocator::Pages CachingAllocator::WholePages(const Block* block) const {
  if (!block->is_expandable) return {};
  const std::size_t skipped =
      RoundUp(reinterpret_cast<std::uintptr_t>(block->pointer), granularity_) -
      reinterpret_cast<std::uintptr_t>(block->pointer);
  if (skipped >= block->size) return {};
  return {skipped, (block->size - skipped) / granularity_ * granularity_};
}

/// Takes the memory behind the whole pages of a block, which is in no list and has some, away.
void CachingAllocator::UnmapPages(Block* block) {
  const auto [skipped, size] = WholePages(block);
  FreeLists& free = FreeListsOf(block);
  Block* pages = block;
  if (skipped > 0) {
    pages = Cut(block, skipped);
    free.Insert(block);
  }
  if (size < pages->size) free.Insert(Cut(pages, size));
  impl_.UnmapMemory(pages->pointer, size);
  CountReserved(*pages->pool, -static_cast<std::ptrdiff_t>(size));
  pages->is_mapped = false;
  Coalesce(pages);
}

/// Gives a segment's addresses back if there is no memory behind any.
void CachingAllocator::ReleaseExpandableSegment(Pool& pool) {
  if (pool.expandable == nullptr) return;
  std::byte* const pointer = pool.expandable->pointer;
  const std::size_t size = pool.expandable->size;
  const auto found = blocks_.find(pointer);
  Block* block = found->second;
  if (block->is_mapped || block->size < size) return;
  impl_.ReleaseAddresses(pointer, size);
  blocks_.erase(found);
  delete block;
  pool.expandable.reset();
}

}  // namespace infini_train::allocator
