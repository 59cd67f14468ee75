#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/device/device_guard.h"

namespace infini_train {

/// A block of memory on one device, shared by the tensors that view it. Counts in-place writes, so
/// that autograd can tell whether a saved value still is what it was.
class INFINI_TRAIN_API Storage {
 public:
  /// Uninitialised memory from the caching allocator.
  Storage(Device device, std::size_t bytes);
  /// Memory owned by somebody else (a mapped file, a caller's buffer); `release` runs when the last
  /// view is gone.
  Storage(Device device, void* data, std::size_t bytes, std::function<void()> release);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device device() const { return device_; }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// Notes that work on `stream` uses the memory (allocator::RecordStream). Memory of somebody else
  /// is its owner's affair.
  void RecordStream(StreamHandle stream) const;

  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void BumpVersion() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Device device_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::function<void()> release_;
  std::atomic<std::uint64_t> version_{0};
};

}  // namespace infini_train
