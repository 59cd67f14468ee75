// The runtime of my_backend, function by function. As it stands, two devices are ordinary host
// memory, and all work is done when a call returns. Replace the body of one function after the
// other with the SDK's call that the comment over it names, and run the rung of the ladder that the
// section belongs to.

#include "infini_train/core/device/device_guard.h"

#include <malloc.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "infini_train/core/error.h"

namespace infini_train::my_backend {
namespace {

constexpr int kDevices = 2;
constexpr std::size_t kAlignment = 64;

struct Stream {
  int priority;
};

struct Event {
  std::optional<std::chrono::steady_clock::time_point> time;
};

thread_local int current_device = 0;

/// Bytes that each device has given out.
std::array<std::atomic<std::size_t>, kDevices> allocated{};

class MyBackendDeviceGuard final : public DeviceGuardImpl {
 public:
  // [begin: device count]
  // GetDeviceCount. An error is no device, not an exception.
  int DeviceCount() const noexcept override { return kDevices; }

  // SetDevice. Of the calling thread; a thread starts with device 0.
  void SetDevice(int index) override {
    if (index < 0 || index >= kDevices) {
      throw Error("my_backend:" + std::to_string(index) + " does not exist: there are " +
                  std::to_string(kDevices) + " devices");
    }
    current_device = index;
  }

  // GetDevice.
  int CurrentDevice() const override { return current_device; }

  // GetDeviceProperties and MemGetInfo. Leaves the current device as it is.
  DeviceProperties Properties(int index) const override {
    DeviceProperties properties;
    properties.name = "my_backend";
    properties.total_memory = TotalMemory();
    properties.free_memory = TotalMemory() - allocated[index];
    properties.compute_units = 1;
    properties.warp_size = 1;
    return properties;
  }
  // [end: device count]

  // [begin: malloc]
  // Malloc. Out of memory is null; every other error is thrown.
  void* Allocate(std::size_t bytes) override {
    if (bytes > TotalMemory() - allocated[current_device]) return nullptr;
    void* pointer =
        std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    allocated[current_device] += malloc_usable_size(pointer);
    return pointer;
  }

  // Free. What Allocate gave out on the current device.
  void Free(void* pointer) noexcept override {
    allocated[current_device] -= malloc_usable_size(pointer);
    std::free(pointer);
  }
  // [end: malloc]

  // [begin: copy]
  // MemcpyAsync.
  void CopyAsync(void* destination, const void* source, std::size_t bytes, CopyKind,
                 StreamHandle) override {
    if (bytes > 0) std::memmove(destination, source, bytes);
  }

  // MemcpyPeerAsync.
  void CopyPeerAsync(void* destination, int, const void* source, int, std::size_t bytes,
                     StreamHandle) override {
    if (bytes > 0) std::memmove(destination, source, bytes);
  }

  // MemsetAsync.
  void FillBytesAsync(void* destination, int value, std::size_t bytes, StreamHandle) override {
    if (bytes > 0) std::memset(destination, value, bytes);
  }

  // StreamSynchronize. A null stream is the default stream of the current device.
  void SynchronizeStream(StreamHandle) override {}
  // [end: copy]

  // [begin: stream and event]
  // DeviceSynchronize.
  void SynchronizeDevice() override {}

  // StreamCreateWithPriority, non-blocking. A smaller number is more urgent; clamp what the device
  // does not have.
  StreamHandle CreateStream(int priority) override { return new Stream{priority}; }

  // StreamDestroy. Work that is under way is finished.
  void DestroyStream(StreamHandle stream) noexcept override { delete static_cast<Stream*>(stream); }

  // EventCreate.
  EventHandle CreateEvent() override { return new Event; }

  // EventDestroy.
  void DestroyEvent(EventHandle event) noexcept override { delete static_cast<Event*>(event); }

  // EventRecord. Recording again replaces the earlier record.
  void RecordEvent(EventHandle event, StreamHandle) override {
    static_cast<Event*>(event)->time = std::chrono::steady_clock::now();
  }

  // StreamWaitEvent. An event that was never recorded holds nothing up.
  void StreamWaitEvent(StreamHandle, EventHandle) override {}

  // EventQuery. "Not ready" is false; an event that was never recorded is done.
  bool QueryEvent(EventHandle) override { return true; }

  // EventSynchronize.
  void SynchronizeEvent(EventHandle) override {}

  // EventElapsedTime, in milliseconds.
  float ElapsedMilliseconds(EventHandle start, EventHandle end) override {
    const auto& from = static_cast<const Event*>(start)->time;
    const auto& to = static_cast<const Event*>(end)->time;
    if (!from || !to) throw Error("elapsed time needs two events that were recorded");
    return std::chrono::duration<float, std::milli>(*to - *from).count();
  }
  // [end: stream and event]

 private:
  /// Bytes of the host.
  static std::size_t TotalMemory() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }
};

REGISTER_DEVICE_GUARD(kPrivateUse1, MyBackendDeviceGuard);

}  // namespace
}  // namespace infini_train::my_backend
