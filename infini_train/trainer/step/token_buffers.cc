#include "infini_train/trainer/step/token_buffers.h"

#include <fmt/format.h>

#include <algorithm>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"

namespace infini_train::trainer {

PinnedMemory::PinnedMemory(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  const DeviceGuard guard(device);
  data_ = GetDeviceGuardImpl(device.type()).AllocateHost(bytes);
  if (data_ == nullptr) {
    throw Error(fmt::format("out of page-locked host memory: asked for {} B", bytes));
  }
}

PinnedMemory::~PinnedMemory() {
  GetDeviceGuardImpl(device_.type()).FreeHost(data_);
}

TokenBuffers::Staged::Staged(const Tensor& tensor) : tensor(tensor) {
  if (tensor.numel() > 0) memory = std::make_unique<PinnedMemory>(tensor.device(), tensor.nbytes());
}

void TokenBuffers::Staged::Copy() const {
  if (memory == nullptr) return;
  const Device device = tensor.device();
  const DeviceGuard guard(device);
  GetDeviceGuardImpl(device.type())
      .CopyAsync(tensor.raw_data(), memory->data<void>(), memory->bytes(), CopyKind::kHostToDevice,
                 CurrentStream(device));
}

TokenBuffers::TokenBuffers(Device device, std::span<const TokenBatch> batches)
    : batch_size_(batches.front().batch_size),
      sequence_length_(batches.front().sequence_length),
      num_samples_(batches.front().sample_lengths.size()),
      padded_(!batches.front().row_lengths.empty()),
      tokens_(Tensor::Empty(
          {static_cast<std::int64_t>(batches.size()), 2, batch_size_ * sequence_length_},
          DataType::kInt64, device)),
      positions_(Tensor::Empty(
          {num_samples_ > 0 ? tokens_.tensor.size(0) : 0, batch_size_ * sequence_length_},
          DataType::kInt64, device)),
      lengths_(Tensor::Empty({num_samples_ > 0 ? tokens_.tensor.size(0) : 0,
                              static_cast<std::int64_t>(num_samples_) + 1},
                             DataType::kInt32, device)),
      mask_(Tensor::Empty({padded_ ? tokens_.tensor.size(0) : 0, batch_size_, sequence_length_},
                          DataType::kUInt8, device)),
      inverse_targets_(Tensor::Empty({}, DataType::kFloat32, device)) {
  const bool packed = num_samples_ > 0;
  const Dims shape =
      packed ? Dims{1, batch_size_ * sequence_length_} : Dims{batch_size_, sequence_length_};
  for (std::int64_t i = 0; i < tokens_.tensor.size(0); ++i) {
    const Tensor pair = Select(tokens_.tensor, 0, i);
    DeviceBatch& batch = batches_.emplace_back();
    batch.inputs = Reshape(Select(pair, 0, 0), shape);
    batch.targets = Reshape(Select(pair, 0, 1), shape);
    if (padded_) batch.token_mask = Select(mask_.tensor, 0, i);
    if (packed) {
      batch.samples = {Select(lengths_.tensor, 0, i), Select(positions_.tensor, 0, i),
                       sequence_length_};
    }
  }
}

bool TokenBuffers::Fit(std::span<const TokenBatch> batches) const {
  const auto fits = [&](const TokenBatch& batch) {
    return batch.batch_size == batch_size_ && batch.sequence_length == sequence_length_ &&
           batch.sample_lengths.size() == num_samples_ && batch.row_lengths.empty() != padded_;
  };
  return batches.size() == batches_.size() && std::all_of(batches.begin(), batches.end(), fits);
}

void TokenBuffers::Fill(std::span<const TokenBatch> batches) {
  auto* tokens = tokens_.data<std::int64_t>();
  auto* positions = positions_.data<std::int64_t>();
  auto* lengths = lengths_.data<std::int32_t>();
  auto* mask = mask_.data<std::uint8_t>();
  std::int64_t num_targets = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const TokenBatch& batch = batches[i];
    tokens = std::copy(batch.inputs.begin(), batch.inputs.end(), tokens);
    tokens = std::copy(batch.targets.begin(), batch.targets.end(), tokens);
    batches_[i].num_targets = batch.num_targets;
    batches_[i].num_targets_of_others = batch.num_targets_of_others;
    num_targets += batch.num_targets + batch.num_targets_of_others;
    if (padded_) {
      const std::vector<std::uint8_t> values = TokenMask(batch);
      mask = std::copy(values.begin(), values.end(), mask);
    }
    if (num_samples_ == 0) continue;
    const nn::PackedLayout layout =
        nn::LayOutSamples(batch.sample_lengths, batch_size_ * sequence_length_);
    positions = std::copy(layout.positions.begin(), layout.positions.end(), positions);
    lengths =
        std::copy(layout.cumulative_lengths.begin(), layout.cumulative_lengths.end(), lengths);
  }
  *inverse_targets_.data<float>() =
      num_targets > 0 ? static_cast<float>(1.0 / static_cast<double>(num_targets)) : 0.0f;
  for (const Staged* staged : {&tokens_, &positions_, &lengths_, &mask_, &inverse_targets_})
    staged->Copy();
}

}  // namespace infini_train::trainer
