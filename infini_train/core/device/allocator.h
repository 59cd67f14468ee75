#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device_guard.h"

namespace infini_train {

/// Bytes held by the caching allocator of one device.
struct MemoryStats {
  std::size_t allocated = 0;               ///< in live tensors, after rounding
  std::size_t peak_allocated = 0;          ///< highest `allocated` since the last reset
  std::size_t reserved = 0;                ///< obtained from the provider
  std::size_t peak_reserved = 0;           ///< highest `reserved` since the last reset
  std::uint64_t allocations = 0;           ///< requests served since the start
  std::uint64_t provider_allocations = 0;  ///< of them, the ones that asked the provider
};

/// Stream-ordered caching allocator over DeviceGuardImpl::Allocate. A freed block is reused at once
/// by later work on the stream that allocated it; a block that another stream used (RecordStream)
/// waits for an event on that stream. No synchronisation in steady state. Thread-safe.
namespace allocator {

/// `bytes` on `device` for use on the calling thread's current stream; null for 0 bytes. Frees
/// cached blocks and retries before it gives up with an Error that says how much was asked, is held
/// in tensors, is cached, and is free on the device.
INFINI_TRAIN_API void* Allocate(Device device, std::size_t bytes);

/// Returns a block from Allocate, on any thread. Anything else is ignored.
INFINI_TRAIN_API void Free(Device device, void* pointer) noexcept;

/// Notes that work on `stream` uses the block: it is not reused until that work is done.
INFINI_TRAIN_API void RecordStream(Device device, void* pointer, StreamHandle stream);

/// Gives cached blocks that no tensor uses back to the provider.
INFINI_TRAIN_API void EmptyCache(Device device);

INFINI_TRAIN_API MemoryStats Stats(Device device);
/// Sets both peaks to the present values.
INFINI_TRAIN_API void ResetPeakStats(Device device);

}  // namespace allocator
}  // namespace infini_train
