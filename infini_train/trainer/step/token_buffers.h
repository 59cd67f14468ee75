#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/tensor.h"
#include "infini_train/data/data_loader.h"
#include "infini_train/trainer/setup.h"

namespace infini_train::trainer {

/// Page-locked host memory, which a device reads and writes while the host goes on.
class PinnedMemory {
 public:
  /// Throws Error when there is none left.
  PinnedMemory(Device device, std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  Device device_;
  std::size_t bytes_;
  void* data_;
};

/// The micro-batches of a step at fixed places on a device, where captured work finds those of
/// every replay.
class TokenBuffers {
 public:
  TokenBuffers(Device device, std::int64_t num_batches, std::int64_t batch_size,
               std::int64_t sequence_length);

  /// Whether as many micro-batches of this size fit exactly.
  bool Fit(std::span<const TokenBatch> batches) const;
  /// Copies them in stream order without waiting. The copies of the call before must be over.
  void Fill(std::span<const TokenBatch> batches);
  /// The micro-batches as Fill left them.
  const std::vector<DeviceBatch>& batches() const { return batches_; }

 private:
  Tensor tokens_;  ///< [num_batches, 2 (inputs, targets), batch_size, sequence_length]
  PinnedMemory staging_;
  std::vector<DeviceBatch> batches_;
};

}  // namespace infini_train::trainer
