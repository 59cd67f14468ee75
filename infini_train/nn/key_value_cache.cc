#include "infini_train/nn/key_value_cache.h"

#include <fmt/format.h>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"

namespace infini_train::nn {

KeyValueCache::KeyValueCache(std::int64_t num_layers, std::int64_t capacity) : capacity_(capacity) {
  if (num_layers <= 0 || capacity <= 0) {
    throw Error(fmt::format("key/value cache: expected positive sizes, got {} layers, {} positions",
                            num_layers, capacity));
  }
  layers_.resize(static_cast<std::size_t>(num_layers));
}

std::pair<Tensor, Tensor> KeyValueCache::Append(std::int64_t layer, const Tensor& key,
                                                const Tensor& value) {
  const std::int64_t tokens = key.size(2);
  if (length_ + tokens > capacity_) {
    throw Error(fmt::format("key/value cache: expected at most {} positions, got {} + {}",
                            capacity_, length_, tokens));
  }
  if (layer < 0 || layer >= static_cast<std::int64_t>(layers_.size())) {
    throw Error(
        fmt::format("key/value cache: expected a layer below {}, got {}", layers_.size(), layer));
  }
  auto& [keys, values] = layers_[static_cast<std::size_t>(layer)];
  if (!keys.defined()) {
    const Dims shape = {key.size(0), key.size(1), capacity_, key.size(3)};
    keys = Tensor::Empty(shape, key.dtype(), key.device());
    values = Tensor::Empty(shape, value.dtype(), value.device());
  }
  const Dims expected = {keys.size(0), keys.size(1), tokens, keys.size(3)};
  if (!(key.shape() == expected) || !(value.shape() == expected)) {
    throw Error(fmt::format("key/value cache: expected keys and values {}, got {} and {}",
                            expected.ToString(), key.shape().ToString(), value.shape().ToString()));
  }
  const std::int64_t end = length_ + tokens;
  CopyInPlace(Slice(keys, 2, length_, end), key);
  CopyInPlace(Slice(values, 2, length_, end), value);
  return {Slice(keys, 2, 0, end), Slice(values, 2, 0, end)};
}

void KeyValueCache::Truncate(std::int64_t length) {
  if (length < 0 || length > length_) {
    throw Error(
        fmt::format("key/value cache: expected a length in [0, {}], got {}", length_, length));
  }
  length_ = length;
}

}  // namespace infini_train::nn
