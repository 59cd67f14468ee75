#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "native/cpu/engine/handle.h"
#include "native/cpu/engine/stream.h"
#include "native/cpu/memory/memory_pool.h"

namespace infini::rt::cpu {

/// Stream priorities; a smaller number is more urgent.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

/// One CPU device: its streams, its memory accounting and its pool.
class DeviceState {
 public:
  DeviceState(int index, std::size_t total_memory);

  int index() const { return index_; }
  Stream& legacy_stream() { return *legacy_stream_; }
  MemoryPool& pool() { return pool_; }

  /// A stream with one reference, registered with the device.
  Stream* CreateStream(Stream::Role role, int priority);
  void RemoveStream(Stream* stream);

  /// Calls `visit` for every stream, the legacy one included, while the list is locked.
  template <typename Visit>
  void ForEachStream(Visit visit) {
    std::lock_guard lock(streams_mutex_);
    for (Stream* stream : streams_)
      visit(*stream);
  }

  /// Waits for all work so far; with `blocking_only` not for that of non-blocking streams.
  void Synchronize(bool blocking_only);
  /// Whether that work is done.
  bool Idle(bool blocking_only);

  std::size_t total_memory() const { return total_memory_; }
  std::size_t free_memory() const { return total_memory_ - used_.load(std::memory_order_relaxed); }
  /// Memory of this device, aligned to 256 bytes, or null if it or the system is exhausted.
  void* Allocate(std::size_t size);
  void Deallocate(void* ptr, std::size_t size);
  /// Counts memory that comes from elsewhere; false if there is not as much left.
  bool Charge(std::size_t size);
  void Discharge(std::size_t size) { used_.fetch_sub(size, std::memory_order_relaxed); }

  /// Captures that blocking streams of this device take part in; guarded as in `capture.h`, may be
  /// read without the lock.
  std::atomic<int> blocking_captures{0};

 private:
  const int index_;
  const std::size_t total_memory_;
  std::atomic<std::size_t> used_{0};
  std::mutex streams_mutex_;
  std::vector<Stream*> streams_;
  Stream* legacy_stream_;
  MemoryPool pool_;
};

}  // namespace infini::rt::cpu
