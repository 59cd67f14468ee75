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
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/private_use1.h"

namespace infini_train::test {

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
  void* Allocate(std::size_t bytes) { return Add(bytes, kPage, /*in_use=*/true); }

  /// Addresses, multiples of `piece`, that have no bytes until pieces of them are in use.
  void* Reserve(std::size_t bytes, std::size_t piece) { return Add(bytes, piece, false); }

  /// Puts the pieces of a reserved range to use, or out of use: then their bytes are lost. Throws
  /// for what is no such piece, or is so already.
  void SetInUse(void* pointer, std::size_t bytes, bool in_use) {
    auto* address = static_cast<std::byte*>(pointer);
    const std::lock_guard lock(mutex_);
    const auto found = Find(address);
    if (found == ranges_.end()) throw std::invalid_argument("pieces of no range");
    Range& range = found->second;
    const auto offset = static_cast<std::size_t>(address - found->first);
    if (bytes == 0 || offset % range.piece != 0 || bytes % range.piece != 0 ||
        offset + bytes > range.size) {
      throw std::invalid_argument("no pieces of the range");
    }
    for (std::size_t i = offset / range.piece; i < (offset + bytes) / range.piece; ++i) {
      if (range.in_use[i] == in_use) throw std::invalid_argument("memory behind a part of it");
      range.in_use[i] = in_use;
    }
    if (!in_use) madvise(address + range.size, bytes, MADV_DONTNEED);
  }

  void Free(void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find(static_cast<std::byte*>(pointer));
    munmap(found->second.mapping, found->second.mapped);
    ranges_.erase(found);
  }

  /// Where the bytes of a device address are; null for an address that has none.
  std::byte* Bytes(const void* pointer) {
    auto* address = static_cast<std::byte*>(const_cast<void*>(pointer));
    const std::lock_guard lock(mutex_);
    const auto found = Find(address);
    if (found == ranges_.end()) return nullptr;
    const auto& [start, range] = *found;
    const auto piece = static_cast<std::size_t>(address - start) / range.piece;
    return range.in_use[piece] ? address + range.size : nullptr;
  }

 private:
  static constexpr std::size_t kPage = 4096;

  struct Range {
    std::size_t size = 0;
    std::size_t piece = 0;
    std::vector<bool> in_use;  ///< by piece
    void* mapping = nullptr;
    std::size_t mapped = 0;
  };
  using Ranges = std::map<std::byte*, Range>;

  void* Add(std::size_t bytes, std::size_t piece, bool in_use) {
    const std::size_t size = (bytes + piece - 1) / piece * piece;
    const std::size_t mapped = 2 * size + piece;
    void* mapping =
        mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    auto* start = static_cast<std::byte*>(mapping);
    start += -reinterpret_cast<std::uintptr_t>(start) % piece;
    if (mprotect(start + size, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
    const std::lock_guard lock(mutex_);
    ranges_.emplace(start,
                    Range{size, piece, std::vector<bool>(size / piece, in_use), mapping, mapped});
    return start;
  }

  Ranges::iterator Find(std::byte* address) {
    const auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) return ranges_.end();
    const auto found = std::prev(next);
    return address < found->first + found->second.size ? found : ranges_.end();
  }

  std::mutex mutex_;
  Ranges ranges_;
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
  inline static std::atomic<int> map_calls = 0;
  inline static std::atomic<int> unmap_calls = 0;
  inline static std::atomic<int> live_ranges = 0;
  /// The stream of the last copy.
  inline static std::atomic<StreamHandle> last_stream = nullptr;
  /// Bytes that each device has.
  inline static std::size_t capacity = std::size_t{1} << 40;
  inline static std::size_t used = 0;
  /// Of mapped memory; 0: the device maps none.
  inline static std::size_t granularity = 0;
  inline static bool fail_reserve = false;
  inline static bool fail_map = false;
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
  std::size_t MappingGranularity() const override { return MockRuntime::granularity; }
  void* ReserveAddresses(std::size_t bytes) override {
    if (MockRuntime::fail_reserve) return nullptr;
    ++MockRuntime::live_ranges;
    return MockRuntime::memory.Reserve(bytes, MockRuntime::granularity);
  }
  void ReleaseAddresses(void* pointer, std::size_t) noexcept override {
    --MockRuntime::live_ranges;
    MockRuntime::memory.Free(pointer);
  }
  bool MapMemory(void* pointer, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    ++MockRuntime::map_calls;
    if (MockRuntime::fail_map) throw std::runtime_error("MapMemory");
    if (bytes > MockRuntime::capacity - MockRuntime::used) return false;
    MockRuntime::memory.SetInUse(pointer, bytes, true);
    MockRuntime::used += bytes;
    return true;
  }
  void UnmapMemory(void* pointer, std::size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    ++MockRuntime::unmap_calls;
    MockRuntime::memory.SetInUse(pointer, bytes, false);
    MockRuntime::used -= bytes;
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

}  // namespace infini_train::test
