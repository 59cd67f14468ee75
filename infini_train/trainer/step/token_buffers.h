#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/tensor.h"
#include "infini_train/data/batch_source.h"
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
  /// For micro-batches like these.
  TokenBuffers(Device device, std::span<const TokenBatch> batches);

  /// Whether as many micro-batches of this size, with as many packed samples, fit exactly.
  bool Fit(std::span<const TokenBatch> batches) const;
  /// Copies them in stream order without waiting. The copies of the call before must be over.
  void Fill(std::span<const TokenBatch> batches);
  /// The micro-batches as Fill left them.
  const std::vector<DeviceBatch>& batches() const { return batches_; }
  /// 1 / the number of their targets and those of the other ranks, float32 [].
  const Tensor& inverse_targets() const { return inverse_targets_.tensor; }

 private:
  /// A tensor, and where the host prepares what is copied to it.
  struct Staged {
    explicit Staged(const Tensor& tensor);
    void Copy() const;
    /// What Copy takes; null for a tensor without elements.
    template <typename T>
    T* data() const {
      return memory == nullptr ? nullptr : memory->data<T>();
    }

    Tensor tensor;
    std::unique_ptr<PinnedMemory> memory;
  };

  std::int64_t batch_size_;
  std::int64_t sequence_length_;
  std::size_t num_samples_;  ///< of a micro-batch; 0: they are not packed
  bool padded_;              ///< rows have lengths
  Staged tokens_;            ///< int64 [batches, 2 (inputs, targets), positions]
  Staged positions_;         ///< int64 [batches, positions in samples]; or none
  Staged lengths_;           ///< int32 [batches, cumulative lengths]; or none
  Staged mask_;              ///< uint8 [batches, batch_size, sequence_length]; or none
  Staged inverse_targets_;
  std::vector<DeviceBatch> batches_;
};

}  // namespace infini_train::trainer
