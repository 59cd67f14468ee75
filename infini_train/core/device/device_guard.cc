#include "infini_train/core/device/device_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <mutex>

#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

constexpr std::size_t kHostAlignment = 64;

/// The runtime of a kind of device. Runtimes are never destroyed: tensors in static objects may
/// outlive every order of destruction.
struct Slot {
  std::mutex mutex;
  std::atomic<DeviceGuardImpl*> impl{nullptr};
  std::atomic<detail::DeviceGuardFactory> factory{nullptr};
  const char* file = nullptr;
  int line = 0;
};

/// Constant-initialised: registrars of other files may run first.
constinit std::array<Slot, kNumDeviceTypes> slots;

constinit thread_local std::array<std::array<StreamHandle, kMaxDevicesPerType>, kNumDeviceTypes>
    current_streams{};

constinit std::atomic<bool> is_deterministic{true};

Slot& SlotOf(DeviceType type) {
  return slots[static_cast<std::size_t>(type)];
}

StreamHandle& CurrentStreamSlot(Device device) {
  if (device.index() < 0 || device.index() >= kMaxDevicesPerType) {
    throw Error(fmt::format("device {} is out of range: at most {} devices of a kind are supported",
                            device.ToString(), kMaxDevicesPerType));
  }
  return current_streams[static_cast<std::size_t>(device.type())]
                        [static_cast<std::size_t>(device.index())];
}

[[noreturn]] void ThrowNoRuntime(DeviceType type) {
  switch (type) {
    case DeviceType::kCPU:
      throw Error("the CPU runtime is not linked; link InfiniTrain::InfiniTrain");
    case DeviceType::kCUDA:
      throw Error(
          "this program has no cuda devices: build with -DINFINITRAIN_BACKEND=cuda and link "
          "InfiniTrain::Backend::CUDAExecutable");
    case DeviceType::kPrivateUse1:
      break;
  }
  const std::string name = ToString(type);
  std::string target = name;
  std::transform(target.begin(), target.end(), target.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  throw Error(fmt::format(
      "provider '{}' is registered, but its runtime and kernels are not linked: link the "
      "whole-archive target InfiniTrain::Backend::{}Executable instead of "
      "InfiniTrain::Backend::{}",
      name, target, target));
}

DeviceGuardImpl& ConstructDeviceGuardImpl(DeviceType type) {
  if (type == DeviceType::kPrivateUse1 && !core::detail::ClosePrivateUse1Registration()) {
    throw Error(
        "no PrivateUse1 provider is registered: call the provider's RegisterBackend() before its "
        "devices are used");
  }
  Slot& slot = SlotOf(type);
  const std::lock_guard lock(slot.mutex);
  if (DeviceGuardImpl* impl = slot.impl.load(std::memory_order_relaxed)) return *impl;
  const detail::DeviceGuardFactory factory = slot.factory.load(std::memory_order_acquire);
  if (factory == nullptr) ThrowNoRuntime(type);
  DeviceGuardImpl* impl = factory().release();
  impl->SetDeterministic(is_deterministic.load());
  slot.impl.store(impl, std::memory_order_release);
  return *impl;
}

}  // namespace

DeviceGuardImpl::~DeviceGuardImpl() = default;

void DeviceGuardImpl::BeginCapture(StreamHandle) {
  throw Error("this kind of device cannot capture work into graphs");
}

GraphHandle DeviceGuardImpl::EndCapture(StreamHandle) {
  throw Error("this kind of device cannot capture work into graphs");
}

void DeviceGuardImpl::LaunchGraph(GraphHandle, StreamHandle) {
  throw Error("this kind of device cannot capture work into graphs");
}

void DeviceGuardImpl::DestroyGraph(GraphHandle) noexcept {}

void* DeviceGuardImpl::AllocateHost(std::size_t bytes) {
  return std::aligned_alloc(kHostAlignment, (bytes + kHostAlignment - 1) & ~(kHostAlignment - 1));
}

void DeviceGuardImpl::FreeHost(void* pointer) noexcept {
  std::free(pointer);
}

void* DeviceGuardImpl::ReserveAddresses(std::size_t) {
  return nullptr;
}

void DeviceGuardImpl::ReleaseAddresses(void*, std::size_t) noexcept {}

bool DeviceGuardImpl::MapMemory(void*, std::size_t) {
  return false;
}

void DeviceGuardImpl::UnmapMemory(void*, std::size_t) noexcept {}

DeviceGuardImpl& GetDeviceGuardImpl(DeviceType type) {
  DeviceGuardImpl* impl = SlotOf(type).impl.load(std::memory_order_acquire);
  return impl != nullptr ? *impl : ConstructDeviceGuardImpl(type);
}

bool HasDeviceGuardImpl(DeviceType type) noexcept {
  return SlotOf(type).factory.load(std::memory_order_acquire) != nullptr;
}

DeviceGuard::DeviceGuard(Device device) {
  if (device == Device()) return;  // The only CPU is always current.
  DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
  previous_ = impl.CurrentDevice();
  if (previous_ == device.index()) return;
  impl.SetDevice(device.index());
  impl_ = &impl;
}

DeviceGuard::~DeviceGuard() {
  if (impl_ == nullptr) return;
  try {
    impl_->SetDevice(previous_);
  } catch (const std::exception&) {
    // A device that was current a moment ago is lost; the next call on it says so.
  }
}

StreamHandle CurrentStream(Device device) {
  return CurrentStreamSlot(device);
}

StreamGuard::StreamGuard(Device device, StreamHandle stream)
    : device_(device), previous_(CurrentStreamSlot(device)) {
  // The CPU's kernels do not look at streams: what is on this one goes before them.
  if (device.is_cpu() && stream != nullptr)
    GetDeviceGuardImpl(DeviceType::kCPU).SynchronizeStream(stream);
  CurrentStreamSlot(device) = stream;
}

StreamGuard::~StreamGuard() {
  CurrentStreamSlot(device_) = previous_;
}

void Synchronize(Device device) {
  DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
  const DeviceGuard guard(device);
  impl.SynchronizeStream(CurrentStream(device));
}

void SetDeterministic(bool deterministic) {
  is_deterministic.store(deterministic);
  for (Slot& slot : slots) {
    const std::lock_guard lock(slot.mutex);
    if (DeviceGuardImpl* impl = slot.impl.load()) impl->SetDeterministic(deterministic);
  }
}

bool IsDeterministic() noexcept {
  return is_deterministic.load(std::memory_order_relaxed);
}

detail::DeviceGuardRegistrar::DeviceGuardRegistrar(DeviceType type, DeviceGuardFactory factory,
                                                   const char* file, int line) {
  Slot& slot = SlotOf(type);
  const std::lock_guard lock(slot.mutex);
  if (slot.factory.load(std::memory_order_relaxed) != nullptr) {
    throw Error(fmt::format("two runtimes are registered for {}: at {}:{} and at {}:{}",
                            ToString(type), slot.file, slot.line, file, line));
  }
  slot.file = file;
  slot.line = line;
  slot.factory.store(factory, std::memory_order_release);
}

}  // namespace infini_train
