#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

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

/// Device memory that host code cannot touch: an address range that faults, with a twin elsewhere
/// that holds the bytes and that only the runtime's copies know.
class MockMemory {
 public:
  void* Allocate(std::size_t bytes) {
    const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
    void* mapping =
        mmap(nullptr, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    auto* start = static_cast<std::byte*>(mapping);
    if (mprotect(start + size, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
    const std::lock_guard lock(mutex_);
    sizes_.emplace(start, size);
    return start;
  }

  void Free(void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(static_cast<std::byte*>(pointer));
    munmap(pointer, 2 * found->second);
    sizes_.erase(found);
  }

  /// Where the bytes of a device address are; null for an address that is none.
  std::byte* Bytes(const void* pointer) {
    auto* address = static_cast<std::byte*>(const_cast<void*>(pointer));
    const std::lock_guard lock(mutex_);
    const auto next = sizes_.upper_bound(address);
    if (next == sizes_.begin()) return nullptr;
    const auto& [start, size] = *std::prev(next);
    return address < start + size ? address + size : nullptr;
  }

 private:
  static constexpr std::size_t kPage = 4096;

  std::mutex mutex_;
  std::map<std::byte*, std::size_t> sizes_;
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
  inline static std::atomic<int> device_waits = 0;
  /// The stream of the last copy.
  inline static std::atomic<StreamHandle> last_stream = nullptr;
  /// Bytes that each device has.
  inline static std::size_t capacity = std::size_t{1} << 40;
  inline static std::size_t used = 0;
  inline static bool capturing = false;
  inline static bool deterministic = false;
  /// Profiler ranges, as "+Name" and "-".
  inline static std::string ranges;
  inline static bool fail_events = false;
  inline static thread_local int current_device = 0;
  /// Never destroyed: tensors in static objects may be the last to use it.
  inline static MockMemory& memory = *new MockMemory;
};

/// An accelerator with two devices and no kernels. Its memory cannot be read or written but with
/// the copies of the runtime.
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
  void SynchronizeDevice() override { ++MockRuntime::device_waits; }

  void* Allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes > MockRuntime::capacity - MockRuntime::used) return nullptr;
    void* pointer = MockRuntime::memory.Allocate(bytes);
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
    MockRuntime::memory.Free(pointer);
  }
  void CopyAsync(void* destination, const void* source, std::size_t bytes, CopyKind kind,
                 StreamHandle stream) override {
    ++MockRuntime::copies;
    MockRuntime::last_stream = stream;
    if (kind != CopyKind::kHostToDevice) source = DeviceBytes(source);
    if (kind != CopyKind::kDeviceToHost) destination = DeviceBytes(destination);
    std::memcpy(destination, source, bytes);
  }
  void CopyPeerAsync(void* destination, int, const void* source, int, std::size_t bytes,
                     StreamHandle) override {
    ++MockRuntime::copies;
    std::memcpy(DeviceBytes(destination), DeviceBytes(source), bytes);
  }
  void FillBytesAsync(void* destination, int value, std::size_t bytes, StreamHandle) override {
    std::memset(DeviceBytes(destination), value, bytes);
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
  void PushProfilerRange(const char* name) override {
    MockRuntime::ranges += '+';
    MockRuntime::ranges += name;
  }
  void PopProfilerRange() noexcept override { MockRuntime::ranges += '-'; }
  void SetDeterministic(bool deterministic) override { MockRuntime::deterministic = deterministic; }

 private:
  void* DeviceBytes(const void* pointer) {
    std::byte* bytes = MockRuntime::memory.Bytes(pointer);
    if (bytes == nullptr) throw std::invalid_argument("no address of the device");
    return bytes;
  }

  std::mutex mutex_;
  std::map<void*, std::size_t> sizes_;
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
