#include "infini_train/core/device/caching_allocator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>

#include "infini_train/core/error.h"

namespace infini_train::allocator {
namespace {

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Freed memory that the quick lists of a pool may hold.
constexpr std::size_t kMaxQuickBytes = kMiB;

/// Rounding up a request never overflows below this.
constexpr std::size_t kMaxRequest = SIZE_MAX / 2;

int SizeClassOf(std::size_t size) {
  return size <= kSizeClasses[0].max_request ? 0 : size <= kSizeClasses[1].max_request ? 1 : 2;
}

std::string Describe(std::size_t bytes) {
  if (bytes < kMiB) return fmt::format("{} B", bytes);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

/// The PrivateMemory::Scope of the calling thread.
struct Ownership {
  const CachingAllocator* allocator = nullptr;
  PrivateState* state = nullptr;
};
constinit thread_local Ownership ownership;

}  // namespace

CachingAllocator::CachingAllocator(Device device)
    : device_(device), impl_(GetDeviceGuardImpl(device.type())), is_host_(impl_.IsHostMemory()) {}

void* CachingAllocator::Allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  // Work on the host is done when a call returns, so its streams need no separate pools.
  StreamHandle stream = is_host_ ? nullptr : CurrentStream(device_);
  const std::lock_guard lock(mutex_);
  if (bytes > kMaxRequest) ThrowOutOfMemory(bytes);
  const std::size_t size = RoundUp(bytes, kBlockUnit);
  Pool& pool = PoolOf(stream, CurrentOwner());
  Block* block = nullptr;
  if (size <= kMaxQuickSize && pool.quick[size / kBlockUnit] != nullptr) {
    block = pool.quick[size / kBlockUnit];
    pool.quick[size / kBlockUnit] = block->next_free;
    pool.quick_bytes -= size;
  } else {
    block = TakeBlock(pool, size, bytes);
  }
  block->is_live = true;
  ++stats_.allocations;
  stats_.allocated += block->size;
  stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  highest_allocated_ = std::max(highest_allocated_, stats_.allocated);
  return block->pointer;
}

void CachingAllocator::Free(void* pointer) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  if (found == blocks_.end() || !found->second->is_live) return;
  Block* block = found->second;
  block->is_live = false;
  stats_.allocated -= block->size;
  PrivateState* const here = CurrentOwner();
  PrivateState* const owner = block->pool->owner;
  try {
    if (here != nullptr && owner != here) {
      here->held.push_back(block);
    } else if (owner != nullptr && !block->streams.empty()) {
      owner->held.push_back(block);
    } else {
      ReleaseWhenIdle(block);
    }
  } catch (const std::exception&) {
    // Nobody knows when the block is idle: it stays out of use.
  }
}

void CachingAllocator::RecordStream(void* pointer, StreamHandle stream) {
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  if (found == blocks_.end() || !found->second->is_live) {
    throw Error(fmt::format("RecordStream: {} is no block of the allocator of {}", pointer,
                            device_.ToString()));
  }
  std::vector<StreamHandle>& streams = found->second->streams;
  if (stream == found->second->pool->stream) return;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

void CachingAllocator::EmptyCache() {
  const std::lock_guard lock(mutex_);
  ProcessEvents(/*wait=*/true);
  ReleaseSegments(SIZE_MAX);
}

MemoryStats CachingAllocator::Stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::ResetPeakStats() {
  const std::lock_guard lock(mutex_);
  stats_.peak_allocated = stats_.allocated;
  stats_.peak_reserved = stats_.reserved;
}

Pool& CachingAllocator::PoolOf(StreamHandle stream, PrivateState* owner) {
  for (const auto& pool : pools_) {
    if (pool->stream == stream && pool->owner == owner) return *pool;
  }
  pools_.push_back(std::make_unique<Pool>());
  pools_.back()->stream = stream;
  pools_.back()->owner = owner;
  return *pools_.back();
}

/// A block of `size` bytes, taken out of the free lists or from the provider.
Block* CachingAllocator::TakeBlock(Pool& pool, std::size_t size, std::size_t bytes) {
  ProcessEvents(/*wait=*/false);
  const int size_class = SizeClassOf(size);
  FreeLists& free = pool.free[size_class];
  Block* block = free.TakeBestFit(size);
  if (block != nullptr && IsDedicated(size_class) && block->size > size + size / 8) {
    free.Insert(block);
    block = nullptr;
  }
  if (block == nullptr && size_class == 0 && pool.quick_bytes > 0) {
    FlushQuickLists(pool);
    block = free.TakeBestFit(size);
  }
  if (block == nullptr) block = TakeFromProvider(pool, size_class, size, bytes);
  Split(block, size);
  return block;
}

/// Cuts `block` to `size` bytes and frees the remainder, where that is large enough to be of use.
void CachingAllocator::Split(Block* block, std::size_t size) {
  const std::size_t remainder = block->size - size;
  if (IsDedicated(block->size_class)) return;
  if (remainder < kSizeClasses[block->size_class].min_split) return;
  Block* rest = Cut(block, size);
  FreeListsOf(rest).Insert(rest);
}

/// Cuts `block`, which is in no list, to `size` bytes and returns the block after it, likewise.
Block* CachingAllocator::Cut(Block* block, std::size_t size) {
  auto* rest = new Block;
  rest->pointer = block->pointer + size;
  rest->size = block->size - size;
  rest->pool = block->pool;
  rest->size_class = block->size_class;
  rest->is_expandable = block->is_expandable;
  rest->is_mapped = block->is_mapped;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->size = size;
  blocks_.emplace(rest->pointer, rest);
  return rest;
}

/// Where the block is when it is free.
FreeLists& CachingAllocator::FreeListsOf(const Block* block) {
  return block->is_mapped ? block->pool->free[block->size_class]
                          : block->pool->expandable->unmapped;
}

/// Makes a block available to the stream that it belongs to when other streams are done with it.
void CachingAllocator::ReleaseWhenIdle(Block* block) {
  if (block->streams.empty()) {
    Release(block);
  } else if (IsCapturing()) {
    awaiting_capture_end_.push_back(block);
  } else {
    RecordEvents(block);
  }
}

/// Makes a block whose last use has finished (in stream order) available.
void CachingAllocator::Release(Block* block) {
  Pool& pool = *block->pool;
  if (block->size_class != 0 || block->size > kMaxQuickSize) {
    Coalesce(block);
    return;
  }
  Block*& head = pool.quick[block->size / kBlockUnit];
  block->next_free = head;
  head = block;
  pool.quick_bytes += block->size;
  if (pool.quick_bytes > kMaxQuickBytes) FlushQuickLists(pool);
}

/// Merges a block with its free neighbours, those without memory apart from the others, and puts it
/// into the free lists.
void CachingAllocator::Coalesce(Block* block) {
  FreeLists& free = FreeListsOf(block);
  const auto merges = [block](const Block* other) {
    return other != nullptr && other->is_free && other->is_mapped == block->is_mapped;
  };
  if (merges(block->next)) {
    free.Remove(block->next);
    MergeWithNext(block);
  }
  if (merges(block->previous)) {
    block = block->previous;
    free.Remove(block);
    MergeWithNext(block);
  }
  free.Insert(block);
}

void CachingAllocator::MergeWithNext(Block* block) {
  Block* next = block->next;
  block->size += next->size;
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  blocks_.erase(next->pointer);
  delete next;
}

void CachingAllocator::FlushQuickLists(Pool& pool) {
  for (Block*& head : pool.quick) {
    while (head != nullptr) {
      Block* block = head;
      head = block->next_free;
      Coalesce(block);
    }
  }
  pool.quick_bytes = 0;
}

/// Marks the present end of the work on the streams that used the block.
void CachingAllocator::RecordEvents(Block* block) {
  const DeviceGuard guard(device_);
  // Counted first: should an event fail, the block stays out of use.
  block->pending_events += static_cast<int>(block->streams.size());
  for (StreamHandle stream : block->streams) {
    if (spare_events_.empty()) spare_events_.push_back(impl_.CreateEvent());
    impl_.RecordEvent(spare_events_.back(), stream);
    pending_.push_back({spare_events_.back(), block});
    spare_events_.pop_back();
  }
  block->streams.clear();
}

/// Releases the blocks that other streams have finished with.
void CachingAllocator::ProcessEvents(bool wait) {
  if ((pending_.empty() && awaiting_capture_end_.empty()) || IsCapturing()) return;
  const DeviceGuard guard(device_);
  while (!awaiting_capture_end_.empty()) {
    Block* block = awaiting_capture_end_.back();
    awaiting_capture_end_.pop_back();
    RecordEvents(block);
  }
  for (std::size_t i = 0; i < pending_.size();) {
    const auto [event, block] = pending_[i];
    if (wait) {
      impl_.SynchronizeEvent(event);
    } else if (!impl_.QueryEvent(event)) {
      ++i;
      continue;
    }
    spare_events_.push_back(event);
    pending_[i] = pending_.back();
    pending_.pop_back();
    if (--block->pending_events == 0) Release(block);
  }
}

PrivateState* CachingAllocator::CurrentOwner() const {
  return ownership.allocator == this ? ownership.state : nullptr;
}

void CachingAllocator::EnterPrivate(PrivateState& state) {
  if (ownership.state != nullptr) {
    throw Error("this thread already captures work into a graph");
  }
  const std::lock_guard lock(mutex_);
  ++private_scopes_;
  ownership = {this, &state};
}

void CachingAllocator::LeavePrivate() {
  const std::lock_guard lock(mutex_);
  --private_scopes_;
  ownership = {};
}

void CachingAllocator::EndPrivate(PrivateState& state) noexcept {
  const std::lock_guard lock(mutex_);
  const bool is_used = std::any_of(pools_.begin(), pools_.end(),
                                   [&](const auto& pool) { return pool->owner == &state; });
  if (!is_used && state.held.empty()) return;
  bool idle = is_host_;
  std::optional<DeviceGuard> guard;
  try {
    guard.emplace(device_);
    if (!idle && private_scopes_ == 0) {
      impl_.SynchronizeDevice();
      idle = true;
    }
  } catch (const std::exception&) {
    // A failed device: its memory is kept from further use as far as that needs it to answer.
  }
  for (Block* block : state.held) {
    if (idle) block->streams.clear();
    try {
      ReleaseWhenIdle(block);
    } catch (const std::exception&) {
      // As in Free.
    }
  }
  Inherit(state, idle);
}

/// Gives the unused segments of a PrivateMemory back, if nothing is running, and the rest to the
/// heir's pool.
void CachingAllocator::Inherit(PrivateState& state, bool idle) {
  Pool& heir = PoolOf(state.heir, nullptr);
  for (const auto& pool : pools_) {
    if (pool->owner != &state) continue;
    FlushQuickLists(*pool);
    for (int size_class = 0; size_class < kNumSizeClasses; ++size_class) {
      FreeLists& free = pool->free[size_class];
      free.ForEach([&](Block* block) {
        free.Remove(block);
        if (idle && block->IsWholeSegment()) {
          GiveBack(block);
        } else {
          heir.free[size_class].Insert(block);
        }
      });
    }
    heir.reserved += pool->reserved;
    stats_.private_reserved -= pool->reserved;
  }
  for (const auto& [pointer, block] : blocks_) {
    if (block->pool->owner == &state) block->pool = &heir;
  }
  std::erase_if(pools_, [&](const auto& pool) { return pool->owner == &state; });
}

/// Whether every block of a size class is a segment of its own. So are the large ones on the host,
/// where a segment costs little: a long-lived block never keeps a much larger one from being whole.
bool CachingAllocator::IsDedicated(int size_class) const {
  return is_host_ && size_class == kLargeClass;
}

bool CachingAllocator::IsCapturing() const {
  return impl_.IsCapturing(CurrentStream(device_));
}

void CachingAllocator::CountReserved(Pool& pool, std::ptrdiff_t bytes) {
  pool.reserved += bytes;
  if (pool.owner != nullptr) stats_.private_reserved += bytes;
  stats_.reserved += bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
}

void CachingAllocator::ThrowOutOfMemory(std::size_t bytes) {
  throw Error(fmt::format("out of memory on {}: asked for {}, {}", device_.ToString(),
                          Describe(bytes), DescribeUse()));
}

/// Who holds the memory of the device.
std::string CachingAllocator::DescribeUse() const {
  constexpr std::size_t kNamed = 3;
  std::vector<std::size_t> live;
  std::size_t live_in_private = 0;
  std::size_t largest_cached = 0;
  for (const auto& [pointer, block] : blocks_) {
    const bool is_private = block->pool->owner != nullptr;
    if (block->is_live) live.push_back(block->size);
    if (block->is_live && is_private) live_in_private += block->size;
    if (block->is_free && block->is_mapped && !is_private)
      largest_cached = std::max(largest_cached, block->size);
  }
  std::string use = fmt::format("{} is held in tensors", Describe(stats_.allocated));
  if (live.size() > 1) {
    const auto named = live.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, live.size()));
    std::partial_sort(live.begin(), named, live.end(), std::greater<>());
    std::vector<std::string> sizes;
    std::transform(live.begin(), named, std::back_inserter(sizes), &Describe);
    use += fmt::format(" ({} blocks, the largest {})", live.size(), fmt::join(sizes, ", "));
  }
  const std::size_t unused_private = stats_.private_reserved - live_in_private;
  if (stats_.private_reserved > 0)
    use += fmt::format(", {} is set aside for graphs", Describe(unused_private));
  use +=
      fmt::format(", {} is cached", Describe(stats_.reserved - stats_.allocated - unused_private));
  if (largest_cached > 0) use += fmt::format(" in pieces of at most {}", Describe(largest_cached));
  try {
    const DeviceProperties device = impl_.Properties(device_.index());
    use += fmt::format(", {} of {} is free on the device", Describe(device.free_memory),
                       Describe(device.total_memory));
    if (const std::size_t known = device.free_memory + stats_.reserved; known < device.total_memory)
      use += fmt::format(", {} is held by others", Describe(device.total_memory - known));
  } catch (const std::exception&) {
    use += ", what is free on the device is unknown";
  }
  return use;
}

}  // namespace infini_train::allocator
