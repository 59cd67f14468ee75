#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "infini_train/core/device/cpu/streams.h"
#include "infini_train/core/device/cpu_stream.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t RoundUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Whole pages straight from the system, which starts with a huge page. They go back to the system
/// when freed; the general-purpose heap would keep them, and would fault them in 4 KiB at a time.
void* MapHugePages(std::size_t bytes) {
  void* mapping = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(mapping);
  const std::size_t skipped = RoundUp(reinterpret_cast<std::uintptr_t>(start), kHugePage) -
                              reinterpret_cast<std::uintptr_t>(start);
  if (skipped > 0) munmap(start, skipped);
  if (skipped < kHugePage) munmap(start + skipped + bytes, kHugePage - skipped);
  madvise(start + skipped, bytes, MADV_HUGEPAGE);  // Only a hint; a kernel without them refuses.
  return start + skipped;
}

/// Bytes of a line "MemAvailable:   123 kB" of /proc/meminfo; 0 when absent.
std::size_t MemoryInfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes && std::getline(file, unit)) {
    if (name == key) return kibibytes * 1024;
  }
  return 0;
}

/// The host as a device: kernels, copies and fills are done when the call returns; streams order
/// them with what EnqueueOnCpu put on their threads.
class CpuDeviceGuardImpl final : public DeviceGuardImpl {
 public:
  int DeviceCount() const noexcept override { return 1; }

  void SetDevice(int index) override {
    if (index != 0) throw Error(fmt::format("device cpu:{} does not exist: there is 1 cpu", index));
  }

  int CurrentDevice() const override { return 0; }

  DeviceProperties Properties(int) const override {
    DeviceProperties properties;
    properties.name = "CPU";
    properties.total_memory = MemoryInfo("MemTotal:");
    properties.free_memory = MemoryInfo("MemAvailable:");
    properties.compute_units = static_cast<int>(std::thread::hardware_concurrency());
    return properties;
  }

  void SynchronizeDevice() override { SynchronizeCpuStreams(); }

  void* Allocate(std::size_t bytes) override {
    if (bytes > SIZE_MAX - 2 * kHugePage) return nullptr;
    if (bytes < kHugePage) return std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
    bytes = RoundUp(bytes, kPage);
    void* pointer = MapHugePages(bytes);
    if (pointer != nullptr) {
      const std::lock_guard lock(mutex_);
      mappings_.emplace(pointer, bytes);
    }
    return pointer;
  }

  void Free(void* pointer) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (const auto mapping = mappings_.find(pointer); mapping != mappings_.end()) {
        munmap(pointer, mapping->second);
        mappings_.erase(mapping);
        return;
      }
    }
    std::free(pointer);
  }

  void CopyAsync(void* destination, const void* source, std::size_t bytes, CopyKind,
                 StreamHandle stream) override {
    SynchronizeStream(stream);
    if (bytes > 0) std::memmove(destination, source, bytes);
  }

  void CopyPeerAsync(void* destination, int, const void* source, int, std::size_t bytes,
                     StreamHandle stream) override {
    SynchronizeStream(stream);
    if (bytes > 0) std::memmove(destination, source, bytes);
  }

  void FillBytesAsync(void* destination, int value, std::size_t bytes,
                      StreamHandle stream) override {
    SynchronizeStream(stream);
    if (bytes > 0) std::memset(destination, value, bytes);
  }

  StreamHandle CreateStream(int) override { return CreateCpuStream(); }
  void DestroyStream(StreamHandle stream) noexcept override { DestroyCpuStream(stream); }

  void SynchronizeStream(StreamHandle stream) override {
    if (stream != nullptr) SynchronizeCpuStream(stream);
  }

  EventHandle CreateEvent() override { return new CpuEvent; }
  void DestroyEvent(EventHandle event) noexcept override { delete EventOf(event); }

  void RecordEvent(EventHandle event, StreamHandle stream) override {
    EventOf(event)->Record(stream);
  }

  void StreamWaitEvent(StreamHandle stream, EventHandle event) override {
    const std::shared_ptr<CpuMark> mark = EventOf(event)->mark();
    if (!mark->IsDone()) EnqueueOnCpu(stream, [mark] { mark->Wait(); });
  }

  bool QueryEvent(EventHandle event) override { return EventOf(event)->mark()->IsDone(); }
  void SynchronizeEvent(EventHandle event) override { EventOf(event)->mark()->Wait(); }

  float ElapsedMilliseconds(EventHandle start, EventHandle end) override {
    const auto from = EventOf(start)->mark()->time();
    const auto to = EventOf(end)->mark()->time();
    if (!from || !to) {
      throw Error(
          "elapsed time needs two recorded events that have passed, got one that was "
          "never recorded or has not");
    }
    return std::chrono::duration<float, std::milli>(*to - *from).count();
  }

  bool IsHostMemory() const noexcept override { return true; }

 private:
  static CpuEvent* EventOf(EventHandle event) { return static_cast<CpuEvent*>(event); }

  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> mappings_;
};

REGISTER_DEVICE_GUARD(kCPU, CpuDeviceGuardImpl);

}  // namespace
}  // namespace infini_train
