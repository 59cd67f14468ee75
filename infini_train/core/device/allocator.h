#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device_guard.h"

namespace infini_train {

/// Bytes held by the caching allocator of one device.
struct MemoryStats {
  std::size_t allocated = 0;               ///< in live tensors, after rounding
  std::size_t peak_allocated = 0;          ///< highest `allocated` since the last reset
  std::size_t reserved = 0;                ///< obtained from the provider
  std::size_t peak_reserved = 0;           ///< highest `reserved` since the last reset
  std::size_t private_reserved = 0;        ///< of `reserved`, set aside by PrivateMemory
  std::uint64_t allocations = 0;           ///< requests served since the start
  std::uint64_t provider_allocations = 0;  ///< of them, the ones that asked the provider
};

/// Stream-ordered caching allocator over DeviceGuardImpl::Allocate. A freed block is reused at once
/// by later work on the stream that allocated it; a block that another stream used (RecordStream)
/// waits for an event on that stream. No synchronisation in steady state. Thread-safe.
///
/// Where the device can map memory (DeviceGuardImpl::MappingGranularity), the large blocks of a
/// stream are cut from one range of addresses into which memory is mapped as it grows: what is
/// freed serves requests of any size, and its whole pages can be given back while their neighbours
/// are in use. Elsewhere they are segments that the provider allocates.
namespace allocator {

/// `bytes` on `device` for use on the calling thread's current stream; null for 0 bytes. Frees
/// cached blocks and retries before it gives up with an Error that says how much was asked, is held
/// in tensors, is cached, and is free on the device.
INFINI_TRAIN_API void* Allocate(Device device, std::size_t bytes);

/// Returns a block from Allocate, on any thread. Anything else is ignored.
INFINI_TRAIN_API void Free(Device device, void* pointer) noexcept;

/// Notes that work on `stream` uses the block: it is not reused until that work is done.
INFINI_TRAIN_API void RecordStream(Device device, void* pointer, StreamHandle stream);

/// Whether large blocks that are asked for from now on may be mapped; true at the start.
INFINI_TRAIN_API void SetExpandableSegments(bool enabled) noexcept;
INFINI_TRAIN_API bool ExpandableSegmentsEnabled() noexcept;

/// Gives cached blocks that no tensor uses back to the provider.
INFINI_TRAIN_API void EmptyCache(Device device);

INFINI_TRAIN_API MemoryStats Stats(Device device);
/// Sets both peaks to the present values.
INFINI_TRAIN_API void ResetPeakStats(Device device);

struct PrivateState;

/// Memory of one device that is set aside for a graph (core/device/graph.h): replays write to the
/// addresses that the captured work had, so nothing else may have them as long as the graph lives.
///
/// Inside a Scope the calling thread's blocks on the device come from here, whatever the stream. A
/// block that is freed, then or later, is used again inside a Scope at most. Blocks from elsewhere
/// that the thread frees inside a Scope stay out of use as well, for the captured work may read
/// them. Neither EmptyCache nor a lack of memory gives any of this back.
class INFINI_TRAIN_API PrivateMemory {
 public:
  /// Holds nothing yet.
  explicit PrivateMemory(Device device);
  /// Waits for the device and gives all memory back to the provider, but for what is still in use:
  /// that goes to the stream that was current for the thread that made the object. The work that
  /// used this memory must have been enqueued, and that of graphs must be done.
  ~PrivateMemory();
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

  /// Between the begin and the end of a capture. A thread has one Scope at a time. The device is
  /// never waited for while any thread has one, as that would break its capture.
  class INFINI_TRAIN_API Scope {
   public:
    explicit Scope(PrivateMemory& memory);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PrivateMemory& memory_;
  };

 private:
  const Device device_;
  const std::unique_ptr<PrivateState> state_;
};

}  // namespace allocator
}  // namespace infini_train
