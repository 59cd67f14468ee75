#include "infini_train/nn/key_value_cache.h"

#include <fmt/format.h>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::nn {

KeyValueCache::KeyValueCache(std::int64_t num_layers, std::int64_t capacity) : capacity_(capacity) {
  if (num_layers <= 0 || capacity <= 0) {
    throw Error(fmt::format("key/value cache: expected positive sizes, got {} layers, {} positions",
                            num_layers, capacity));
  }
  layers_.resize(static_cast<std::size_t>(num_layers));
}

std::pair<Tensor, Tensor>& KeyValueCache::Buffers(std::int64_t layer, const Dims& shape,
                                                  DataType dtype, Device device) {
  const std::int64_t tokens = shape[2];
  if (length_ + tokens > capacity_) {
    throw Error(fmt::format("key/value cache: expected at most {} positions, got {} + {}",
                            capacity_, length_, tokens));
  }
  if (layer < 0 || layer >= static_cast<std::int64_t>(layers_.size())) {
    throw Error(
        fmt::format("key/value cache: expected a layer below {}, got {}", layers_.size(), layer));
  }
  auto& buffers = layers_[static_cast<std::size_t>(layer)];
  auto& [keys, values] = buffers;
  if (!keys.defined()) {
    const Dims all = {shape[0], shape[1], capacity_, shape[3]};
    keys = Tensor::Empty(all, dtype, device);
    values = Tensor::Empty(all, dtype, device);
  }
  if (!device_lengths_.defined()) {
    device_lengths_ = Tensor::Empty({shape[0]}, DataType::kInt32, device);
    FillInPlace(device_lengths_, length_);
  }
  const Dims expected = {keys.size(0), keys.size(1), tokens, keys.size(3)};
  if (!(shape == expected) || dtype != keys.dtype()) {
    throw Error(fmt::format("key/value cache: expected keys and values {} {}, got {} {}",
                            ToString(keys.dtype()), expected.ToString(), ToString(dtype),
                            shape.ToString()));
  }
  return buffers;
}

std::pair<Tensor, Tensor> KeyValueCache::Append(std::int64_t layer, const Tensor& key,
                                                const Tensor& value) {
  const auto& [keys, values] = Buffers(layer, key.shape(), key.dtype(), key.device());
  if (!(value.shape() == key.shape())) {
    throw Error(fmt::format("key/value cache: expected keys and values {}, got {} and {}",
                            key.shape().ToString(), key.shape().ToString(),
                            value.shape().ToString()));
  }
  const std::int64_t end = length_ + key.size(2);
  CopyInPlace(Slice(keys, 2, length_, end), key);
  CopyInPlace(Slice(values, 2, length_, end), value);
  return {Slice(keys, 2, 0, end), Slice(values, 2, 0, end)};
}

void KeyValueCache::Advance(std::int64_t tokens) {
  length_ += tokens;
  // By what the device has, so that a graph that captures it counts on in each replay.
  if (device_lengths_.defined()) Call<op::AddScalar>(device_lengths_, device_lengths_, tokens);
}

void KeyValueCache::Truncate(std::int64_t length) {
  if (length < 0 || length > length_) {
    throw Error(
        fmt::format("key/value cache: expected a length in [0, {}], got {}", length_, length));
  }
  length_ = length;
  if (device_lengths_.defined()) FillInPlace(device_lengths_, length_);
}

}  // namespace infini_train::nn
