#include "infini_train/nn/key_value_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::nn {
namespace {

/// Positions that the first buffers have beyond what is needed: most texts end within them.
constexpr std::int64_t kFirstRoom = 512;

}  // namespace

KeyValueCache::KeyValueCache(std::int64_t num_layers, std::int64_t capacity,
                             std::int64_t batch_size)
    : capacity_(capacity) {
  if (num_layers <= 0 || capacity <= 0 || batch_size <= 0) {
    throw Error(
        fmt::format("key/value cache: expected positive sizes, got {} layers, {} positions, {} "
                    "sequences",
                    num_layers, capacity, batch_size));
  }
  layers_.resize(static_cast<std::size_t>(num_layers));
  lengths_.resize(static_cast<std::size_t>(batch_size));
}

std::int64_t KeyValueCache::length() const {
  return *std::max_element(lengths_.begin(), lengths_.end());
}

void KeyValueCache::MakeRoom(std::int64_t positions) {
  if (positions > capacity_) {
    throw Error(fmt::format("key/value cache: expected at most {} positions, got {}", capacity_,
                            positions));
  }
  if (positions <= room_) return;
  room_ = std::min(std::max(positions + kFirstRoom, 2 * room_), capacity_);
  std::vector<std::int64_t> all(lengths_.size());
  std::iota(all.begin(), all.end(), 0);
  MoveBuffers(all);
}

void KeyValueCache::MoveBuffers(std::span<const std::int64_t> sequences) {
  const auto held = [&](const Tensor& buffer, std::size_t i, std::int64_t sequence) {
    const auto row = static_cast<std::int64_t>(i);
    return Slice(Slice(buffer, 0, row, row + 1), 2, 0,
                 lengths_[static_cast<std::size_t>(sequence)]);
  };
  for (auto& [keys, values] : layers_) {
    if (!keys.defined()) continue;
    for (Tensor* buffer : {&keys, &values}) {
      const Tensor moved = Tensor::Empty(
          {static_cast<std::int64_t>(sequences.size()), buffer->size(1), room_, buffer->size(3)},
          buffer->dtype(), buffer->device());
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const std::int64_t sequence = sequences[i];
        CopyInPlace(held(moved, i, sequence),
                    held(*buffer, static_cast<std::size_t>(sequence), sequence));
      }
      *buffer = moved;
    }
  }
}

std::pair<Tensor, Tensor>& KeyValueCache::Buffers(std::int64_t layer, const Dims& shape,
                                                  DataType dtype, Device device) {
  MakeRoom(length() + shape[2]);
  if (layer < 0 || layer >= static_cast<std::int64_t>(layers_.size())) {
    throw Error(
        fmt::format("key/value cache: expected a layer below {}, got {}", layers_.size(), layer));
  }
  auto& buffers = layers_[static_cast<std::size_t>(layer)];
  auto& [keys, values] = buffers;
  if (!keys.defined()) {
    const Dims all = {batch_size(), shape[1], room_, shape[3]};
    keys = Tensor::Empty(all, dtype, device);
    values = Tensor::Empty(all, dtype, device);
  }
  const Dims expected = {batch_size(), keys.size(1), shape[2], keys.size(3)};
  if (!(shape == expected) || dtype != keys.dtype()) {
    throw Error(fmt::format("key/value cache: expected keys and values {} {}, got {} {}",
                            ToString(keys.dtype()), expected.ToString(), ToString(dtype),
                            shape.ToString()));
  }
  return buffers;
}

std::pair<Tensor, Tensor> KeyValueCache::Append(std::int64_t layer, const Tensor& key,
                                                const Tensor& value) {
  const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
  if (*shortest != *longest) {
    throw Error(fmt::format("key/value cache: expected sequences of one length, got {} to {}",
                            *shortest, *longest));
  }
  const auto& [keys, values] = Buffers(layer, key.shape(), key.dtype(), key.device());
  if (!(value.shape() == key.shape())) {
    throw Error(fmt::format("key/value cache: expected keys and values {}, got {} and {}",
                            key.shape().ToString(), key.shape().ToString(),
                            value.shape().ToString()));
  }
  const std::int64_t end = *longest + key.size(2);
  CopyInPlace(Slice(keys, 2, *longest, end), key);
  CopyInPlace(Slice(values, 2, *longest, end), value);
  return {Slice(keys, 2, 0, end), Slice(values, 2, 0, end)};
}

void KeyValueCache::Fill(std::int64_t layer, const Tensor& key, const Tensor& value,
                         std::span<const CachedPrompt> prompts) {
  for (const CachedPrompt& prompt : prompts)
    MakeRoom(prompt.tokens);
  const auto& [keys, values] =
      Buffers(layer, {batch_size(), key.size(1), 0, key.size(3)}, key.dtype(), key.device());
  std::int64_t begin = 0;
  for (const auto& [sequence, tokens] : prompts) {
    const std::int64_t end = begin + tokens;
    const auto keep = [&, s = sequence, count = tokens](const Tensor& buffer, const Tensor& part) {
      CopyInPlace(Slice(Slice(buffer, 0, s, s + 1), 2, 0, count), Slice(part, 2, begin, end));
    };
    keep(keys, key);
    keep(values, value);
    begin = end;
  }
}

const Tensor& KeyValueCache::device_lengths(Device device) {
  if (!device_lengths_.defined()) {
    device_lengths_ = Tensor::Empty({batch_size()}, DataType::kInt32, device);
    WriteDeviceLengths();
  }
  return device_lengths_;
}

void KeyValueCache::WriteDeviceLengths() const {
  if (!device_lengths_.defined()) return;
  const std::vector<std::int32_t> values(lengths_.begin(), lengths_.end());
  CopyInPlace(device_lengths_,
              To(Tensor::FromVector(values, {batch_size()}), device_lengths_.device()));
}

void KeyValueCache::CountReplayed(std::int64_t tokens) {
  for (std::int64_t& length : lengths_)
    length += tokens;
}

void KeyValueCache::Advance(std::int64_t tokens) {
  CountReplayed(tokens);
  // By what the device has, so that a graph that captures it counts on in each replay.
  if (device_lengths_.defined()) Call<op::AddScalar>(device_lengths_, device_lengths_, tokens);
}

void KeyValueCache::Advance(std::span<const CachedPrompt> prompts) {
  for (const auto& [sequence, tokens] : prompts)
    lengths_[static_cast<std::size_t>(sequence)] = tokens;
  WriteDeviceLengths();
}

void KeyValueCache::Truncate(std::int64_t length) {
  const std::int64_t shortest = *std::min_element(lengths_.begin(), lengths_.end());
  if (length < 0 || length > shortest) {
    throw Error(
        fmt::format("key/value cache: expected a length in [0, {}], got {}", shortest, length));
  }
  std::fill(lengths_.begin(), lengths_.end(), length);
  WriteDeviceLengths();
}

void KeyValueCache::CheckSequence(std::int64_t sequence) const {
  if (sequence >= 0 && sequence < batch_size()) return;
  throw Error(
      fmt::format("key/value cache: expected a sequence below {}, got {}", batch_size(), sequence));
}

void KeyValueCache::Clear(std::int64_t sequence) {
  CheckSequence(sequence);
  lengths_[static_cast<std::size_t>(sequence)] = 0;
  WriteDeviceLengths();
}

void KeyValueCache::Keep(std::span<const std::int64_t> sequences) {
  if (sequences.empty()) throw Error("key/value cache: expected sequences to keep, got none");
  std::vector<std::int64_t> lengths;
  for (const std::int64_t sequence : sequences) {
    CheckSequence(sequence);
    lengths.push_back(lengths_[static_cast<std::size_t>(sequence)]);
  }
  MoveBuffers(sequences);
  lengths_ = std::move(lengths);
  device_lengths_ = Tensor();
}

void KeyValueCache::CheckPrompts(std::span<const CachedPrompt> prompts) const {
  std::vector<bool> taken(lengths_.size(), false);
  for (const auto& [sequence, tokens] : prompts) {
    if (sequence < 0 || sequence >= batch_size() || tokens <= 0) {
      throw Error(fmt::format(
          "key/value cache: expected prompts of one token or more for {} sequences, got {} tokens "
          "for sequence {}",
          batch_size(), tokens, sequence));
    }
    const auto s = static_cast<std::size_t>(sequence);
    if (lengths_[s] > 0 || taken[s]) {
      throw Error(
          fmt::format("key/value cache: expected a prompt for an empty sequence, sequence "
                      "{} holds {} positions",
                      sequence, taken[s] ? tokens : lengths_[s]));
    }
    taken[s] = true;
  }
}

}  // namespace infini_train::nn
