#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/nn/module.h"

namespace infini_train::nn {

/// Keys and values of the positions already seen of `batch_size` sequences, whose lengths may
/// differ: one pair of buffers [B, K, room, D] per layer. Memory grows with the longest sequence,
/// up to `capacity` positions. For generation under NoGrad. Part of a captured graph: see
/// TokenGraph.
class INFINI_TRAIN_API KeyValueCache {
 public:
  /// Throws Error unless all are positive.
  KeyValueCache(std::int64_t num_layers, std::int64_t capacity, std::int64_t batch_size = 1);

  std::int64_t batch_size() const { return static_cast<std::int64_t>(lengths_.size()); }
  /// Number of positions held of each sequence, the same in every layer between forward passes.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  /// Of the longest one.
  std::int64_t length() const;
  std::int64_t capacity() const { return capacity_; }

  /// Positions that the buffers have, or get when they are made: no more than the capacity, and
  /// until that is reached some more than are needed.
  std::int64_t room() const { return room_; }
  /// Sees to it that sequences may have `positions`. Where that takes larger buffers, those of
  /// before are copied and no longer used. Throws Error when it is more than the capacity.
  void MakeRoom(std::int64_t positions);

  /// Appends keys and values [B, K, T, D] of one layer at positions length()… of sequences of one
  /// length, and gives views on all up to there. Buffers are made on first use, in the type and on
  /// the device of `key`. Throws Error when there is no room, lengths differ or shapes changed.
  std::pair<Tensor, Tensor> Append(std::int64_t layer, const Tensor& key, const Tensor& value);
  /// Keeps keys and values [1, K, T, D] of one layer: those of the prompts, one after another.
  void Fill(std::int64_t layer, const Tensor& key, const Tensor& value,
            std::span<const CachedPrompt> prompts);

  /// The buffers of a layer for sequences of B, K and D as in `shape` [B, K, 1, D], made on first
  /// use, where the op CachedAttention appends a position to each sequence. Throws Error when there
  /// is no room, or shape or type changed.
  std::pair<Tensor, Tensor>& Buffers(std::int64_t layer, const Dims& shape, DataType dtype,
                                     Device device);
  /// lengths() as int32 [B] on the device of the buffers, the same tensor until Keep.
  const Tensor& device_lengths(Device device);

  /// Counts `tokens` positions of every sequence as held, after all layers have appended them.
  void Advance(std::int64_t tokens);
  /// The same where a replayed graph has counted them on the device.
  void CountReplayed(std::int64_t tokens);
  /// Counts the positions of prompts as held, after all layers have kept them.
  void Advance(std::span<const CachedPrompt> prompts);
  /// Forgets everything after the first `length` positions of every sequence, none of which has
  /// less.
  void Truncate(std::int64_t length);
  /// Forgets a sequence.
  void Clear(std::int64_t sequence);
  /// Goes on with these sequences alone, in this order, in buffers of their number.
  void Keep(std::span<const std::int64_t> sequences);

  /// Throws Error unless prompts are of different sequences, of which nothing is held.
  void CheckPrompts(std::span<const CachedPrompt> prompts) const;

 private:
  void CheckSequence(std::int64_t sequence) const;
  void WriteDeviceLengths() const;
  /// Puts what is held of these sequences into buffers that have room() positions.
  void MoveBuffers(std::span<const std::int64_t> sequences);

  std::int64_t capacity_;
  std::int64_t room_ = 0;
  std::vector<std::int64_t> lengths_;
  std::vector<std::pair<Tensor, Tensor>> layers_;
  Tensor device_lengths_;
};

}  // namespace infini_train::nn
