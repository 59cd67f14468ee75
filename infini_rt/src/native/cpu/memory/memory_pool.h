#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include <infini/rt/types.h>

#include "native/cpu/engine/handle.h"

namespace infini::rt::cpu {

class DeviceState;
class Stream;

/// Stream-ordered memory of one device, with the attributes of CUDA's default pool.
///
/// A freed block carries the point of the stream at which it was freed. It serves the same stream
/// at once, any stream when that point has been reached, and, if memory is short, another stream
/// that is then made to wait for the point. What exceeds the release threshold goes back to the
/// system when the host synchronises.
class MemoryPool {
 public:
  explicit MemoryPool(DeviceState* device) : device_(device) {}

  struct Block {
    void* ptr = nullptr;
    std::size_t capacity = 0;
  };

  /// Memory for use after this point of `stream`; a null block if there is none.
  Block Allocate(std::size_t size, Stream& stream);

  /// Takes a block back; it is free once `position` of `stream` has been reached. A null stream
  /// means at once. `size` is what was asked for at allocation.
  void Free(Block block, std::size_t size, Stream* stream, std::uint64_t position);

  /// Releases free blocks until at most `keep` bytes are reserved or none is left to release.
  void Trim(std::size_t keep);
  /// `Trim` to the release threshold; called where the host has synchronised. Cheap if there is
  /// nothing to do.
  void TrimToThreshold();

  runtime::Error GetAttribute(runtime::MemPoolAttr attr, void* value);
  runtime::Error SetAttribute(runtime::MemPoolAttr attr, const void* value);

 private:
  struct FreeBlock {
    void* ptr;
    RefPtr<Stream> stream;  // null once the point is known to be reached
    std::uint64_t position;
  };
  using FreeBlocks = std::multimap<std::size_t, FreeBlock>;

  static bool Reached(FreeBlock& block);
  FreeBlocks::iterator FindReusable(std::size_t capacity, const Stream& stream);
  FreeBlocks::iterator FindPending(std::size_t capacity);
  Block Take(FreeBlocks::iterator found, std::size_t size);
  void TrimLocked(std::size_t keep);
  void AddUsedLocked(std::size_t size);

  DeviceState* const device_;
  std::mutex mutex_;
  FreeBlocks free_;
  std::atomic<std::size_t> free_bytes_{0};
  std::atomic<std::uint64_t> reserved_{0};
  std::uint64_t reserved_high_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t used_high_ = 0;
  std::atomic<std::uint64_t> release_threshold_{0};
  int reuse_follow_event_dependencies_ = 1;
  int reuse_opportunistic_ = 1;
  int reuse_internal_dependencies_ = 1;
};

}  // namespace infini::rt::cpu
