#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/free_lists.h"

namespace infini_train::allocator {

/// Requests are kept apart by size, so that small ones do not break up the memory of large ones.
inline constexpr int kNumSizeClasses = 3;
inline constexpr int kLargeClass = kNumSizeClasses - 1;

struct SizeClass {
  std::size_t max_request;
  std::size_t segment;    ///< bytes asked of the provider; 0: as the request needs
  std::size_t min_split;  ///< the smallest remainder that is worth a block of its own
};
inline constexpr std::array<SizeClass, kNumSizeClasses> kSizeClasses = {
    {{std::size_t{256} << 10, std::size_t{2} << 20, kBlockUnit},
     {std::size_t{8} << 20, std::size_t{20} << 20, std::size_t{256} << 10},
     {SIZE_MAX, 0, std::size_t{1} << 20}}};

inline std::size_t RoundUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Small blocks up to this size are kept whole when freed, in a list for each size.
inline constexpr std::size_t kMaxQuickSize = std::size_t{64} << 10;

/// What a PrivateMemory keeps: its pools are those that name it as their owner.
struct PrivateState {
  /// The stream that gets what is still in use at the end.
  StreamHandle heir = nullptr;
  /// Freed blocks, of its own pools or others, that nobody may use before the end.
  std::vector<Block*> held;
};

/// A range of the device's addresses, most of them with no memory behind them: it is mapped where
/// blocks need it and unmapped when the cache is trimmed, in multiples of the granularity. Blocks
/// of all sizes are cut from one piece so, and what is freed serves requests of other sizes.
struct ExpandableSegment {
  std::byte* pointer = nullptr;
  std::size_t size = 0;
  FreeLists unmapped;  ///< its blocks without memory
};

/// The memory that one stream allocates from, for everyone or inside a PrivateMemory.
struct Pool {
  StreamHandle stream = nullptr;
  PrivateState* owner = nullptr;
  std::size_t reserved = 0;  ///< bytes of its segments
  std::array<FreeLists, kNumSizeClasses> free;
  std::unique_ptr<ExpandableSegment> expandable;  ///< for large blocks; null: there is none
  /// Freed small blocks that have not been merged with their neighbours, by size in units.
  std::array<Block*, kMaxQuickSize / kBlockUnit + 1> quick{};
  std::size_t quick_bytes = 0;
};

/// The caching allocator of one device: see allocator.h for what it promises.
class CachingAllocator {
 public:
  explicit CachingAllocator(Device device);

  void* Allocate(std::size_t bytes);
  void Free(void* pointer) noexcept;
  void RecordStream(void* pointer, StreamHandle stream);
  void EmptyCache();
  MemoryStats Stats();
  void ResetPeakStats();

  /// Begin and end of a PrivateMemory::Scope of the calling thread.
  void EnterPrivate(PrivateState& state);
  void LeavePrivate();
  void EndPrivate(PrivateState& state) noexcept;

 private:
  struct PendingBlock {
    EventHandle event;
    Block* block;
  };

  /// Memory inside a block.
  struct Pages {
    std::size_t offset = 0;
    std::size_t size = 0;  ///< bytes
  };

  PrivateState* CurrentOwner() const;
  Pool& PoolOf(StreamHandle stream, PrivateState* owner);
  Block* TakeBlock(Pool& pool, std::size_t size, std::size_t bytes);
  void Split(Block* block, std::size_t size);
  Block* Cut(Block* block, std::size_t size);
  FreeLists& FreeListsOf(const Block* block);
  void ReleaseWhenIdle(Block* block);
  void Release(Block* block);
  void Coalesce(Block* block);
  void MergeWithNext(Block* block);
  void FlushQuickLists(Pool& pool);
  void RecordEvents(Block* block);
  void ProcessEvents(bool wait);
  void Inherit(PrivateState& state, bool idle);
  bool IsDedicated(int size_class) const;
  bool IsCapturing() const;
  void CountReserved(Pool& pool, std::ptrdiff_t bytes);
  [[noreturn]] void ThrowOutOfMemory(std::size_t bytes);
  std::string DescribeUse() const;

  // What is asked of the provider and given back: caching_allocator_segments.cc.
  Block* TakeFromProvider(Pool& pool, int size_class, std::size_t size, std::size_t bytes);
  Block* NewSegment(Pool& pool, int size_class, std::size_t bytes);
  bool HasExpandableSegment(Pool& pool, int size_class);
  Block* Expand(Pool& pool, int size_class, std::size_t size);
  void TrimHost(std::size_t segment, std::size_t size);
  void ReleaseSegments(std::size_t bytes);
  void GiveBack(Block* block);
  Pages WholePages(const Block* block) const;
  void UnmapPages(Block* block);
  void ReleaseExpandableSegment(Pool& pool);

  const Device device_;
  DeviceGuardImpl& impl_;
  const bool is_host_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::unordered_map<void*, Block*> blocks_;  ///< every block by its address, free or not
  std::vector<PendingBlock> pending_;
  std::vector<Block*> awaiting_capture_end_;
  std::vector<EventHandle> spare_events_;
  MemoryStats stats_;
  std::size_t highest_allocated_ = 0;  ///< unlike the statistics, never reset
  int private_scopes_ = 0;             ///< of all threads
  bool may_expand_ = true;             ///< false: the device has no ExpandableSegment to offer
  std::size_t granularity_ = 0;        ///< of mapped memory, where there is an ExpandableSegment
};

}  // namespace infini_train::allocator
