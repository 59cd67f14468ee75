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

TokenBuffers::TokenBuffers(Device device, std::int64_t num_batches, std::int64_t batch_size,
                           std::int64_t sequence_length)
    : tokens_(
          Tensor::Empty({num_batches, 2, batch_size, sequence_length}, DataType::kInt64, device)),
      staging_(device, tokens_.nbytes()) {
  for (std::int64_t i = 0; i < num_batches; ++i) {
    const Tensor pair = Select(tokens_, 0, i);
    batches_.push_back({Select(pair, 0, 0), Select(pair, 0, 1)});
  }
}

bool TokenBuffers::Fit(std::span<const TokenBatch> batches) const {
  const auto fits = [&](const TokenBatch& batch) {
    return batch.batch_size == tokens_.size(2) && batch.sequence_length == tokens_.size(3);
  };
  return batches.size() == batches_.size() && std::all_of(batches.begin(), batches.end(), fits);
}

void TokenBuffers::Fill(std::span<const TokenBatch> batches) {
  auto* next = staging_.data<std::int64_t>();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    next = std::copy(batches[i].inputs.begin(), batches[i].inputs.end(), next);
    next = std::copy(batches[i].targets.begin(), batches[i].targets.end(), next);
    batches_[i].num_targets = batches[i].num_targets;
  }
  const Device device = tokens_.device();
  const DeviceGuard guard(device);
  GetDeviceGuardImpl(device.type())
      .CopyAsync(tokens_.raw_data(), staging_.data<void>(), staging_.bytes(),
                 CopyKind::kHostToDevice, CurrentStream(device));
}

}  // namespace infini_train::trainer
