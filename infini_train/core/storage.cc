#include "infini_train/core/storage.h"

#include <utility>

#include "infini_train/core/device/allocator.h"

namespace infini_train {

Storage::Storage(Device device, std::size_t bytes)
    : device_(device), data_(allocator::Allocate(device, bytes)), bytes_(bytes) {}

Storage::Storage(Device device, void* data, std::size_t bytes, std::function<void()> release)
    : device_(device), data_(data), bytes_(bytes), release_(std::move(release)) {}

Storage::~Storage() {
  if (release_) {
    release_();
  } else {
    allocator::Free(device_, data_);
  }
}

void Storage::RecordStream(StreamHandle stream) const {
  if (!release_ && data_ != nullptr) allocator::RecordStream(device_, data_, stream);
}

}  // namespace infini_train
