#include "native/cpu/memory/memory_pool.h"

#include <algorithm>
#include <iterator>

#include "native/cpu/engine/device_state.h"
#include "native/cpu/engine/op.h"
#include "native/cpu/engine/stream.h"

namespace infini::rt::cpu {
namespace {

constexpr std::size_t kSmallGranule = 512;
constexpr std::size_t kLargeGranule = 64 * 1024;
constexpr std::size_t kLargeSize = 1024 * 1024;

// Sizes are rounded so that similar requests can share blocks.
std::size_t Capacity(std::size_t size) {
  std::size_t granule = size >= kLargeSize ? kLargeGranule : kSmallGranule;
  if (size > SIZE_MAX - granule) return size;
  return (size + granule - 1) / granule * granule;
}

// The largest free block that may serve a request: one eighth is wasted at most, small ones aside.
std::size_t LargestFit(std::size_t capacity) {
  return std::max(capacity + capacity / 8, capacity + 4 * kSmallGranule);
}

}  // namespace

bool MemoryPool::Reached(FreeBlock& block) {
  if (block.stream && block.stream->completed() < block.position) return false;
  block.stream = {};
  return true;
}

MemoryPool::FreeBlocks::iterator MemoryPool::FindReusable(std::size_t capacity,
                                                          const Stream& stream) {
  auto end = free_.upper_bound(LargestFit(capacity));
  for (auto block = free_.lower_bound(capacity); block != end; ++block) {
    if (block->second.stream.get() == &stream || !block->second.stream) return block;
    if (reuse_opportunistic_ != 0 && Reached(block->second)) return block;
  }
  return free_.end();
}

MemoryPool::FreeBlocks::iterator MemoryPool::FindPending(std::size_t capacity) {
  auto block = free_.lower_bound(capacity);
  return reuse_internal_dependencies_ != 0 ? block : free_.end();
}

MemoryPool::Block MemoryPool::Take(FreeBlocks::iterator found, std::size_t size) {
  Block block{found->second.ptr, found->first};
  free_bytes_.fetch_sub(found->first, std::memory_order_relaxed);
  free_.erase(found);
  AddUsedLocked(size);
  return block;
}

void MemoryPool::AddUsedLocked(std::size_t size) {
  used_ += size;
  used_high_ = std::max(used_high_, used_);
}

MemoryPool::Block MemoryPool::Allocate(std::size_t size, Stream& stream) {
  std::size_t capacity = Capacity(size);
  Op wait = Op::Nop();
  Block block;
  {
    std::lock_guard lock(mutex_);
    if (auto found = FindReusable(capacity, stream); found != free_.end()) {
      return Take(found, size);
    }
    void* ptr = device_->Allocate(capacity);
    if (ptr == nullptr) {
      TrimLocked(0);
      ptr = device_->Allocate(capacity);
    }
    if (ptr != nullptr) {
      std::uint64_t reserved = reserved_.fetch_add(capacity, std::memory_order_relaxed) + capacity;
      reserved_high_ = std::max(reserved_high_, reserved);
      AddUsedLocked(size);
      return {ptr, capacity};
    }
    auto found = FindPending(capacity);
    if (found == free_.end()) return {};
    if (found->second.stream) wait = Op::Wait(found->second.stream.get(), found->second.position);
    block = Take(found, size);
  }
  if (stream.Enqueue(wait) != 0) return block;
  Free(block, size, nullptr, 0);
  return {};
}

void MemoryPool::Free(Block block, std::size_t size, Stream* stream, std::uint64_t position) {
  std::lock_guard lock(mutex_);
  free_.emplace(block.capacity, FreeBlock{block.ptr, RefPtr<Stream>(stream), position});
  free_bytes_.fetch_add(block.capacity, std::memory_order_relaxed);
  used_ -= size;
}

void MemoryPool::TrimLocked(std::size_t keep) {
  for (auto block = free_.end();
       block != free_.begin() && reserved_.load(std::memory_order_relaxed) > keep;) {
    --block;
    if (!Reached(block->second)) continue;
    device_->Deallocate(block->second.ptr, block->first);
    free_bytes_.fetch_sub(block->first, std::memory_order_relaxed);
    reserved_.fetch_sub(block->first, std::memory_order_relaxed);
    block = free_.erase(block);
  }
}

void MemoryPool::Trim(std::size_t keep) {
  std::lock_guard lock(mutex_);
  TrimLocked(keep);
}

void MemoryPool::TrimToThreshold() {
  if (free_bytes_.load(std::memory_order_relaxed) == 0) return;
  std::uint64_t threshold = release_threshold_.load(std::memory_order_relaxed);
  if (reserved_.load(std::memory_order_relaxed) > threshold) Trim(threshold);
}

runtime::Error MemoryPool::GetAttribute(runtime::MemPoolAttr attr, void* value) {
  std::lock_guard lock(mutex_);
  auto* flag = static_cast<int*>(value);
  auto* bytes = static_cast<std::uint64_t*>(value);
  switch (attr) {
    case runtime::kMemPoolReuseFollowEventDependencies:
      *flag = reuse_follow_event_dependencies_;
      return runtime::kSuccess;
    case runtime::kMemPoolReuseAllowOpportunistic:
      *flag = reuse_opportunistic_;
      return runtime::kSuccess;
    case runtime::kMemPoolReuseAllowInternalDependencies:
      *flag = reuse_internal_dependencies_;
      return runtime::kSuccess;
    case runtime::kMemPoolAttrReleaseThreshold:
      *bytes = release_threshold_.load(std::memory_order_relaxed);
      return runtime::kSuccess;
    case runtime::kMemPoolAttrReservedMemCurrent:
      *bytes = reserved_.load(std::memory_order_relaxed);
      return runtime::kSuccess;
    case runtime::kMemPoolAttrReservedMemHigh:
      *bytes = reserved_high_;
      return runtime::kSuccess;
    case runtime::kMemPoolAttrUsedMemCurrent:
      *bytes = used_;
      return runtime::kSuccess;
    case runtime::kMemPoolAttrUsedMemHigh:
      *bytes = used_high_;
      return runtime::kSuccess;
  }
  return runtime::kErrorInvalidValue;
}

runtime::Error MemoryPool::SetAttribute(runtime::MemPoolAttr attr, const void* value) {
  std::lock_guard lock(mutex_);
  const auto* flag = static_cast<const int*>(value);
  const auto* bytes = static_cast<const std::uint64_t*>(value);
  switch (attr) {
    case runtime::kMemPoolReuseFollowEventDependencies:
      reuse_follow_event_dependencies_ = *flag != 0;
      return runtime::kSuccess;
    case runtime::kMemPoolReuseAllowOpportunistic:
      reuse_opportunistic_ = *flag != 0;
      return runtime::kSuccess;
    case runtime::kMemPoolReuseAllowInternalDependencies:
      reuse_internal_dependencies_ = *flag != 0;
      return runtime::kSuccess;
    case runtime::kMemPoolAttrReleaseThreshold:
      release_threshold_.store(*bytes, std::memory_order_relaxed);
      return runtime::kSuccess;
    case runtime::kMemPoolAttrReservedMemHigh:
      if (*bytes != 0) return runtime::kErrorInvalidValue;
      reserved_high_ = reserved_.load(std::memory_order_relaxed);
      return runtime::kSuccess;
    case runtime::kMemPoolAttrUsedMemHigh:
      if (*bytes != 0) return runtime::kErrorInvalidValue;
      used_high_ = used_;
      return runtime::kSuccess;
    case runtime::kMemPoolAttrReservedMemCurrent:
    case runtime::kMemPoolAttrUsedMemCurrent:
      break;
  }
  return runtime::kErrorInvalidValue;
}

}  // namespace infini::rt::cpu
