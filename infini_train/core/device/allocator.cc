#include "infini_train/core/device/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "infini_train/core/device/caching_allocator.h"
#include "infini_train/core/error.h"

namespace infini_train::allocator {
namespace {

using DeviceTable = std::array<std::atomic<CachingAllocator*>, kMaxDevicesPerType>;

/// Constant-initialised and never destroyed: tensors may live in static objects.
constinit std::array<DeviceTable, kNumDeviceTypes> allocators{};
constinit std::mutex creation_mutex;

std::atomic<CachingAllocator*>* Find(Device device) {
  if (device.index() < 0 || device.index() >= kMaxDevicesPerType) return nullptr;
  return &allocators[static_cast<std::size_t>(device.type())]
                    [static_cast<std::size_t>(device.index())];
}

CachingAllocator& Create(Device device) {
  const int count = GetDeviceGuardImpl(device.type()).DeviceCount();
  if (device.index() < 0 || device.index() >= std::min(count, kMaxDevicesPerType)) {
    throw Error(fmt::format(
        "device {} does not exist: expected an index below {}",
        device.is_cpu() ? fmt::format("cpu:{}", device.index()) : device.ToString(), count));
  }
  const std::lock_guard lock(creation_mutex);
  std::atomic<CachingAllocator*>& slot = *Find(device);
  CachingAllocator* allocator = slot.load(std::memory_order_relaxed);
  if (allocator == nullptr) {
    allocator = new CachingAllocator(device);
    slot.store(allocator, std::memory_order_release);
  }
  return *allocator;
}

CachingAllocator& Of(Device device) {
  const std::atomic<CachingAllocator*>* slot = Find(device);
  CachingAllocator* allocator = slot ? slot->load(std::memory_order_acquire) : nullptr;
  return allocator != nullptr ? *allocator : Create(device);
}

}  // namespace

void* Allocate(Device device, std::size_t bytes) {
  return Of(device).Allocate(bytes);
}

void Free(Device device, void* pointer) noexcept {
  if (pointer == nullptr) return;
  // Whoever holds a block has made the allocator.
  const std::atomic<CachingAllocator*>* slot = Find(device);
  CachingAllocator* allocator = slot ? slot->load(std::memory_order_acquire) : nullptr;
  if (allocator != nullptr) allocator->Free(pointer);
}

void RecordStream(Device device, void* pointer, StreamHandle stream) {
  Of(device).RecordStream(pointer, stream);
}

void EmptyCache(Device device) {
  Of(device).EmptyCache();
}

MemoryStats Stats(Device device) {
  return Of(device).Stats();
}

void ResetPeakStats(Device device) {
  Of(device).ResetPeakStats();
}

PrivateMemory::PrivateMemory(Device device)
    : device_(device), state_(std::make_unique<PrivateState>()) {
  state_->heir = CurrentStream(device);
}

PrivateMemory::~PrivateMemory() {
  const std::atomic<CachingAllocator*>* slot = Find(device_);
  CachingAllocator* allocator = slot ? slot->load(std::memory_order_acquire) : nullptr;
  if (allocator != nullptr) allocator->EndPrivate(*state_);
}

PrivateMemory::Scope::Scope(PrivateMemory& memory) : memory_(memory) {
  Of(memory.device_).EnterPrivate(*memory.state_);
}

PrivateMemory::Scope::~Scope() {
  Of(memory_.device_).LeavePrivate();
}

}  // namespace infini_train::allocator
