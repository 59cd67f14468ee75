#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"

namespace infini_train {

/// A provider's native stream or event, as the provider's runtime hands it out. A null stream is
/// the device's default stream.
using StreamHandle = void*;
using EventHandle = void*;
/// A provider's executable graph.
using GraphHandle = void*;

/// The most devices of one kind that a process uses.
inline constexpr int kMaxDevicesPerType = 64;

enum class CopyKind : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };

struct DeviceProperties {
  std::string name;
  std::size_t total_memory = 0;  ///< bytes
  std::size_t free_memory = 0;   ///< bytes
  int compute_units = 0;
  int warp_size = 1;  ///< lanes that execute together
};

/// Bytes that kernels moved between device memory and the processors.
struct DeviceTraffic {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};

/// How a runtime was told to work, for reports: a name, a value, and where the value comes from.
struct RuntimeSetting {
  std::string name;
  std::string value;
  std::string origin;  ///< "default", "flag" or "environment", say
};

/// The runtime that a provider fills in for its kind of device. Pure virtual functions are
/// required; the others are optional and say what their absence means. All act on the calling
/// thread's current device of this kind and may be called by many threads at once. Failures throw
/// Error, except where a function says otherwise.
///
/// Registered with REGISTER_DEVICE_GUARD at file scope; constructed on the first use of the device
/// kind, once per process.
class INFINI_TRAIN_API DeviceGuardImpl {
 public:
  virtual ~DeviceGuardImpl();

  // Devices.
  /// Number of devices; 0 when the runtime finds none. Does not throw.
  virtual int DeviceCount() const noexcept = 0;
  virtual void SetDevice(int index) = 0;
  virtual int CurrentDevice() const = 0;
  virtual DeviceProperties Properties(int index) const = 0;
  /// Waits for all work on the current device.
  virtual void SynchronizeDevice() = 0;

  // Memory. The framework caches; a provider allocates, frees and copies.
  /// Returns null when out of memory. Aligned to at least 64 bytes.
  virtual void* Allocate(std::size_t bytes) = 0;
  virtual void Free(void* pointer) noexcept = 0;
  /// Copies in stream order. Pageable host memory may make the call block.
  virtual void CopyAsync(void* destination, const void* source, std::size_t bytes, CopyKind kind,
                         StreamHandle stream) = 0;
  /// Copies between two devices of this kind, in order of `stream` (of the current device).
  virtual void CopyPeerAsync(void* destination, int destination_device, const void* source,
                             int source_device, std::size_t bytes, StreamHandle stream) = 0;
  virtual void FillBytesAsync(void* destination, int value, std::size_t bytes,
                              StreamHandle stream) = 0;
  /// Optional: page-locked host memory. Without it the framework uses ordinary memory.
  virtual void* AllocateHost(std::size_t bytes);
  virtual void FreeHost(void* pointer) noexcept;
  /// Optional: ranges of addresses whose memory comes and goes in pieces, all of these functions
  /// where MappingGranularity says so: the bytes of which pieces and their addresses are multiples,
  /// a power of two. 0: the current device has none, and the framework asks for blocks.
  virtual std::size_t MappingGranularity() const { return 0; }
  /// Addresses with no memory behind them yet, the first a multiple of the granularity; null when
  /// there are not as many left.
  virtual void* ReserveAddresses(std::size_t bytes);
  /// Gives back what one ReserveAddresses returned, with no memory behind any of it.
  virtual void ReleaseAddresses(void* pointer, std::size_t bytes) noexcept;
  /// Puts new memory behind a piece of a range that has none. False when out of memory: then no
  /// part of it has any.
  virtual bool MapMemory(void* pointer, std::size_t bytes);
  /// Takes the memory behind a piece away, mapped by one call or by several, or a part of what one
  /// mapped. Work that uses it is done.
  virtual void UnmapMemory(void* pointer, std::size_t bytes) noexcept;

  // Streams and events, with CUDA's semantics.
  virtual StreamHandle CreateStream(int priority) = 0;
  virtual void DestroyStream(StreamHandle stream) noexcept = 0;
  virtual void SynchronizeStream(StreamHandle stream) = 0;
  virtual EventHandle CreateEvent() = 0;
  virtual void DestroyEvent(EventHandle event) noexcept = 0;
  virtual void RecordEvent(EventHandle event, StreamHandle stream) = 0;
  virtual void StreamWaitEvent(StreamHandle stream, EventHandle event) = 0;
  /// True when all work captured by the last record has finished.
  virtual bool QueryEvent(EventHandle event) = 0;
  virtual void SynchronizeEvent(EventHandle event) = 0;
  /// Milliseconds between two recorded events.
  virtual float ElapsedMilliseconds(EventHandle start, EventHandle end) = 0;

  /// Optional: whether host code may read and write device memory directly. Only the CPU says yes.
  virtual bool IsHostMemory() const noexcept { return false; }
  /// Optional: whether the calling thread is capturing work into a graph on `stream`.
  virtual bool IsCapturing(StreamHandle stream) const { return (void)stream, false; }
  /// Optional: graphs of captured work, all of them where CanCapture says yes. Work that the
  /// calling thread enqueues on `stream` after BeginCapture is recorded instead of run, until
  /// EndCapture returns it ready to run again and again.
  virtual bool CanCapture() const noexcept { return false; }
  virtual void BeginCapture(StreamHandle stream);
  /// Throws Error when something could not be captured; the capture is over all the same.
  virtual GraphHandle EndCapture(StreamHandle stream);
  virtual void LaunchGraph(GraphHandle graph, StreamHandle stream);
  virtual void DestroyGraph(GraphHandle graph) noexcept;
  /// Optional: a named range on the calling thread in the vendor's profiler. Without it, profiles
  /// show kernels without the ops that they belong to.
  virtual void PushProfilerRange(const char* name) { (void)name; }
  virtual void PopProfilerRange() noexcept {}
  /// Optional: whether the same call must give the same bits, told at the start and at each change.
  /// Without it, kernels and libraries always do.
  virtual void SetDeterministic(bool deterministic) { (void)deterministic; }
  /// Optional: what finished kernels have moved since the process started, on all devices. Without
  /// it, reports reckon with the least that an op can move.
  virtual std::optional<DeviceTraffic> Traffic() const { return std::nullopt; }
  /// Optional: the settings that this process runs with, which `infini-train info` prints.
  virtual std::vector<RuntimeSetting> Settings() const { return {}; }
};

/// The runtime of a kind of device, constructed on first use. Throws Error when the build or the
/// process has none, saying what to link or enable.
INFINI_TRAIN_API DeviceGuardImpl& GetDeviceGuardImpl(DeviceType type);

/// Whether a runtime is registered for this kind of device. Starts nothing.
INFINI_TRAIN_API bool HasDeviceGuardImpl(DeviceType type) noexcept;

/// Makes `device` the current one of its kind for a scope.
class INFINI_TRAIN_API DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  DeviceGuardImpl* impl_ = nullptr;
  int previous_ = 0;
};

/// The stream that the calling thread's work on `device` goes to.
INFINI_TRAIN_API StreamHandle CurrentStream(Device device);

/// Makes `stream` the calling thread's current stream of `device` for a scope.
class INFINI_TRAIN_API StreamGuard {
 public:
  StreamGuard(Device device, StreamHandle stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Device device_;
  StreamHandle previous_;
};

/// Waits until the calling thread's current stream of `device` is idle.
INFINI_TRAIN_API void Synchronize(Device device);

/// Whether all devices must give the same bits for the same call (SetDeterministic of their
/// runtimes). On at the start; off lets a provider choose faster algorithms that do not.
INFINI_TRAIN_API void SetDeterministic(bool deterministic);
INFINI_TRAIN_API bool IsDeterministic() noexcept;

namespace detail {

using DeviceGuardFactory = std::unique_ptr<DeviceGuardImpl> (*)();

/// Throws (at program start: ends the program with the message) on a second runtime for a kind.
struct INFINI_TRAIN_API DeviceGuardRegistrar {
  DeviceGuardRegistrar(DeviceType type, DeviceGuardFactory factory, const char* file, int line);
};

template <typename Impl>
std::unique_ptr<DeviceGuardImpl> MakeDeviceGuard() {
  static_assert(std::is_base_of_v<DeviceGuardImpl, Impl>,
                "a runtime is a class derived from DeviceGuardImpl");
  static_assert(!std::is_abstract_v<Impl>,
                "the runtime lacks required functions of DeviceGuardImpl; those that the compiler "
                "calls pure below");
  // Not make_unique, in whose header the compiler would name the missing functions, or not at all.
  return std::unique_ptr<DeviceGuardImpl>(new Impl);
}

}  // namespace detail

/// Registers `Impl`, a default-constructible DeviceGuardImpl, for DeviceType::kind at file scope.
#define REGISTER_DEVICE_GUARD(kind, Impl)                                                          \
  static const ::infini_train::detail::DeviceGuardRegistrar                                        \
      infini_train_device_guard_##kind##_registrar(::infini_train::DeviceType::kind,               \
                                                   &::infini_train::detail::MakeDeviceGuard<Impl>, \
                                                   __FILE__, __LINE__)

}  // namespace infini_train
