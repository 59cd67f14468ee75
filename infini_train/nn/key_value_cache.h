#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

namespace infini_train::nn {

/// Keys and values of the positions already seen, one pair of buffers [B, K, capacity, D] per
/// layer. For generation under NoGrad. Part of a captured graph: see TokenGraph.
class INFINI_TRAIN_API KeyValueCache {
 public:
  /// Throws Error unless both are positive.
  KeyValueCache(std::int64_t num_layers, std::int64_t capacity);

  /// Number of positions held, the same in every layer between forward passes.
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }

  /// Appends keys and values [B, K, T, D] of one layer at positions length()…, and gives views on
  /// all up to there. Buffers are made on first use, in the type and on the device of `key`. Throws
  /// Error when the capacity is exceeded or shapes changed.
  std::pair<Tensor, Tensor> Append(std::int64_t layer, const Tensor& key, const Tensor& value);

  /// The buffers of a layer for sequences of B, K and D as in `shape` [B, K, 1, D], made on first
  /// use, where the op CachedAttention appends a position. Throws Error when the cache is full or
  /// shape or type changed.
  std::pair<Tensor, Tensor>& Buffers(std::int64_t layer, const Dims& shape, DataType dtype,
                                     Device device);
  /// length() of each sequence, int32 [B] on the device of the buffers, once there are some.
  const Tensor& device_lengths() const { return device_lengths_; }

  /// Counts `tokens` positions as held, after all layers have appended them.
  void Advance(std::int64_t tokens);
  /// The same where a replayed graph has counted them on the device.
  void CountReplayed(std::int64_t tokens) { length_ += tokens; }
  /// Forgets everything after the first `length` positions.
  void Truncate(std::int64_t length);

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<std::pair<Tensor, Tensor>> layers_;
  Tensor device_lengths_;
};

}  // namespace infini_train::nn
