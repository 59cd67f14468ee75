#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/private_use1.h"

namespace infini_train::testing {

/// A stream on which work finishes when the test says so.
struct MockStream {
  std::int64_t issued = 0;
  std::int64_t finished = 0;
};

struct MockEvent {
  MockStream* stream = nullptr;
  std::int64_t point = 0;

  bool IsDone() const { return stream == nullptr || stream->finished >= point; }
};

/// What the mock provider did, and what it shall do.
struct MockRuntime {
  static constexpr int kDevices = 2;

  inline static std::atomic<int> constructed = 0;
  inline static std::atomic<int> set_device_calls = 0;
  inline static std::atomic<int> allocations[kDevices] = {};
  inline static std::atomic<int> live_allocations = 0;
  inline static std::atomic<int> copies = 0;
  inline static std::atomic<int> event_calls = 0;
  /// Bytes that each device has.
  inline static std::size_t capacity = std::size_t{1} << 40;
  inline static std::size_t used = 0;
  inline static bool capturing = false;
  inline static bool fail_events = false;
  inline static thread_local int current_device = 0;
};

/// An accelerator with two devices, whose memory is host memory.
class MockDeviceGuard : public DeviceGuardImpl {
 public:
  MockDeviceGuard() { ++MockRuntime::constructed; }

  int DeviceCount() const noexcept override { return MockRuntime::kDevices; }
  void SetDevice(int index) override {
    if (index < 0 || index >= MockRuntime::kDevices) throw std::out_of_range("SetDevice");
    ++MockRuntime::set_device_calls;
    MockRuntime::current_device = index;
  }
  int CurrentDevice() const override { return MockRuntime::current_device; }
  DeviceProperties Properties(int) const override {
    return {"mock", MockRuntime::capacity, MockRuntime::capacity - MockRuntime::used, 1, 32};
  }
  void SynchronizeDevice() override {}

  void* Allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes > MockRuntime::capacity - MockRuntime::used) return nullptr;
    void* pointer = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    sizes_.emplace(pointer, bytes);
    MockRuntime::used += bytes;
    ++MockRuntime::allocations[MockRuntime::current_device];
    ++MockRuntime::live_allocations;
    return pointer;
  }
  void Free(void* pointer) noexcept override {
    const std::lock_guard lock(mutex_);
    MockRuntime::used -= sizes_.at(pointer);
    sizes_.erase(pointer);
    --MockRuntime::live_allocations;
    std::free(pointer);
  }
  void CopyAsync(void* destination, const void* source, std::size_t bytes, CopyKind,
                 StreamHandle) override {
    ++MockRuntime::copies;
    std::memcpy(destination, source, bytes);
  }
  void CopyPeerAsync(void* destination, int, const void* source, int, std::size_t bytes,
                     StreamHandle) override {
    ++MockRuntime::copies;
    std::memcpy(destination, source, bytes);
  }
  void FillBytesAsync(void* destination, int value, std::size_t bytes, StreamHandle) override {
    std::memset(destination, value, bytes);
  }

  StreamHandle CreateStream(int) override { return new MockStream; }
  void DestroyStream(StreamHandle stream) noexcept override {
    delete static_cast<MockStream*>(stream);
  }
  void SynchronizeStream(StreamHandle) override {}
  EventHandle CreateEvent() override { return new MockEvent; }
  void DestroyEvent(EventHandle event) noexcept override { delete static_cast<MockEvent*>(event); }
  void RecordEvent(EventHandle event, StreamHandle stream) override {
    ++MockRuntime::event_calls;
    if (MockRuntime::fail_events) throw std::runtime_error("RecordEvent");
    auto* mock = static_cast<MockStream*>(stream);
    *static_cast<MockEvent*>(event) = {mock, mock != nullptr ? mock->issued : 0};
  }
  void StreamWaitEvent(StreamHandle, EventHandle) override {}
  bool QueryEvent(EventHandle event) override {
    ++MockRuntime::event_calls;
    return static_cast<MockEvent*>(event)->IsDone();
  }
  void SynchronizeEvent(EventHandle event) override {
    auto* mock = static_cast<MockEvent*>(event);
    if (!mock->IsDone()) mock->stream->finished = mock->point;
  }
  float ElapsedMilliseconds(EventHandle, EventHandle) override { return 0; }
  bool IsCapturing(StreamHandle) const override { return MockRuntime::capturing; }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> sizes_;
};

inline std::unique_ptr<DeviceGuardImpl> MakeMockDeviceGuard() {
  return std::make_unique<MockDeviceGuard>();
}

inline void RegisterMockRuntime() {
  detail::DeviceGuardRegistrar(DeviceType::kPrivateUse1, &MakeMockDeviceGuard, "mock.cc", 1);
}

inline void RegisterMockProvider(const std::string& name = "mock") {
  core::RegisterPrivateUse1Backend({name, DataType::kBFloat16});
  RegisterMockRuntime();
}

}  // namespace infini_train::testing
