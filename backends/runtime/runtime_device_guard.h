#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <infini/rt/concepts.h>
#include <infini/rt/generated.h>
#include <infini/rt/types.h>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"

/// The framework's device interface over an InfiniRT runtime. A provider includes its runtime's
/// header (`<infini/rt/<vendor>/runtime.h>`) and registers the adaptor:
///
///     using DeviceGuard = infini_train::backend::RuntimeDeviceGuard<
///         infini::rt::runtime::Runtime<infini::rt::Device::Type::kCpu>>;
///     REGISTER_DEVICE_GUARD(kPrivateUse1, DeviceGuard);
namespace infini_train::backend {

namespace rt = ::infini::rt::runtime;

/// A runtime that can say more about a failure than its code: `ErrorDetail(error)` returns a
/// sentence, or an empty string.
template <typename Runtime>
concept ExplainsErrors = requires(rt::Error error) {
  { Runtime::ErrorDetail(error) } -> std::convertible_to<std::string>;
};

/// A runtime that sets a device up, with memory of it, when it becomes the current one:
/// `IsInUse(device)` says whether it is set up already.
template <typename Runtime>
concept KnowsDevicesInUse = requires(int device) {
  { Runtime::IsInUse(device) } -> std::same_as<bool>;
};

/// A runtime that maps memory into reserved addresses of the current device, as DeviceGuardImpl
/// asks; a granularity of 0, or an error, says that the device does not.
template <typename Runtime>
concept MapsMemory = requires(void* pointer, void** result, std::size_t bytes) {
  { Runtime::MemGetAllocationGranularity(&bytes) } -> std::same_as<rt::Error>;
  { Runtime::MemAddressReserve(result, bytes) } -> std::same_as<rt::Error>;
  { Runtime::MemAddressFree(pointer, bytes) } -> std::same_as<rt::Error>;
  { Runtime::MemMap(pointer, bytes) } -> std::same_as<rt::Error>;
  { Runtime::MemUnmap(pointer, bytes) } -> std::same_as<rt::Error>;
};

/// Forgets the last error of the calling thread, so that no later call is blamed for it. A failed
/// device stays failed.
template <typename Runtime>
void ForgetLastError() noexcept {
  if constexpr (rt::HasGetLastError<Runtime>) static_cast<void>(Runtime::GetLastError());
}

/// Throws the Error for a failed call: its name, the code's name and number, and what it means.
template <typename Runtime>
[[noreturn]] void ThrowRuntimeError(rt::Error error, const char* call) {
  ForgetLastError<Runtime>();
  std::string message = std::string(call) + " failed: " + rt::GetErrorName(error) + " (" +
                        std::to_string(static_cast<int>(error)) + "), " + rt::GetErrorString(error);
  if constexpr (ExplainsErrors<Runtime>) {
    const std::string detail = Runtime::ErrorDetail(error);
    if (!detail.empty()) message += ": " + detail;
  }
  throw Error(message);
}

/// Throws Error unless the call that returned `error` succeeded.
template <typename Runtime>
void Check(rt::Error error, const char* call) {
  if (error != rt::kSuccess) [[unlikely]]
    ThrowRuntimeError<Runtime>(error, call);
}

/// DeviceGuardImpl over `Runtime`, which is any `infini::rt::runtime::Runtime<>` or a struct
/// derived from one that replaces some of its functions. Streams do not synchronise with the
/// default stream; priorities are CUDA's (a smaller number is more urgent) and clamped to what the
/// device has. A device that is not in use (KnowsDevicesInUse) becomes the runtime's current one
/// only when something is done on it: work on one device takes no memory of another that happened
/// to be current before.
template <rt::CoreRuntime Runtime>
class RuntimeDeviceGuard : public DeviceGuardImpl {
 public:
  int DeviceCount() const noexcept override {
    int count = 0;
    if (Runtime::GetDeviceCount(&count) == rt::kSuccess) return count;
    ForgetLastError<Runtime>();
    return 0;
  }

  void SetDevice(int index) override { MakeCurrent(index); }
  int CurrentDevice() const override { return Current(); }

  DeviceProperties Properties(int index) const override {
    DeviceProperties properties;
    if constexpr (rt::HasGetDeviceProperties<Runtime>) {
      rt::DeviceProp found{};
      Check<Runtime>(Runtime::GetDeviceProperties(&found, index), "GetDeviceProperties");
      properties.name = found.name;
      properties.compute_units = found.multi_processor_count;
      properties.warp_size = found.warp_size;
    }
    const ScopedDevice device(index);
    UseDevice();
    Check<Runtime>(Runtime::MemGetInfo(&properties.free_memory, &properties.total_memory),
                   "MemGetInfo");
    return properties;
  }

  void SynchronizeDevice() override {
    UseDevice();
    Check<Runtime>(Runtime::DeviceSynchronize(), "DeviceSynchronize");
  }

  void* Allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    UseDevice();
    return CheckAllocation(Runtime::Malloc(&pointer, bytes), "Malloc") ? pointer : nullptr;
  }

  void Free(void* pointer) noexcept override {
    if (Runtime::Free(pointer) != rt::kSuccess) ForgetLastError<Runtime>();
  }

  void CopyAsync(void* destination, const void* source, std::size_t bytes, CopyKind kind,
                 StreamHandle stream) override {
    if (bytes == 0) return;
    UseDevice();
    Check<Runtime>(Runtime::MemcpyAsync(destination, source, bytes, KindOf(kind), StreamOf(stream)),
                   "MemcpyAsync");
  }

  void CopyPeerAsync(void* destination, int destination_device, const void* source,
                     int source_device, std::size_t bytes, StreamHandle stream) override {
    if (bytes == 0) return;
    UseDevice();
    if constexpr (rt::HasMemcpyPeerAsync<Runtime>) {
      Check<Runtime>(Runtime::MemcpyPeerAsync(destination, destination_device, source,
                                              source_device, bytes, StreamOf(stream)),
                     "MemcpyPeerAsync");
    } else if (destination_device == source_device) {
      CopyAsync(destination, source, bytes, CopyKind::kDeviceToDevice, stream);
    } else {
      CopyThroughHost(destination, destination_device, source, source_device, bytes, stream);
    }
  }

  void FillBytesAsync(void* destination, int value, std::size_t bytes,
                      StreamHandle stream) override {
    if (bytes == 0) return;
    UseDevice();
    Check<Runtime>(Runtime::MemsetAsync(destination, value, bytes, StreamOf(stream)),
                   "MemsetAsync");
  }

  void* AllocateHost(std::size_t bytes) override {
    void* pointer = nullptr;
    UseDevice();
    return CheckAllocation(Runtime::MallocHost(&pointer, bytes), "MallocHost") ? pointer : nullptr;
  }

  void FreeHost(void* pointer) noexcept override {
    if (Runtime::FreeHost(pointer) != rt::kSuccess) ForgetLastError<Runtime>();
  }

  std::size_t MappingGranularity() const override {
    std::size_t granularity = 0;
    if constexpr (MapsMemory<Runtime>) {
      UseDevice();
      if (Runtime::MemGetAllocationGranularity(&granularity) == rt::kSuccess) return granularity;
      ForgetLastError<Runtime>();
    }
    return 0;
  }

  void* ReserveAddresses(std::size_t bytes) override {
    void* pointer = nullptr;
    if constexpr (MapsMemory<Runtime>) {
      UseDevice();
      if (Runtime::MemAddressReserve(&pointer, bytes) == rt::kSuccess) return pointer;
      ForgetLastError<Runtime>();
    }
    return nullptr;
  }

  void ReleaseAddresses(void* pointer, std::size_t bytes) noexcept override {
    if constexpr (MapsMemory<Runtime>) {
      if (Runtime::MemAddressFree(pointer, bytes) != rt::kSuccess) ForgetLastError<Runtime>();
    }
  }

  bool MapMemory(void* pointer, std::size_t bytes) override {
    if constexpr (MapsMemory<Runtime>) {
      UseDevice();
      return CheckAllocation(Runtime::MemMap(pointer, bytes), "MemMap");
    } else {
      return DeviceGuardImpl::MapMemory(pointer, bytes);
    }
  }

  void UnmapMemory(void* pointer, std::size_t bytes) noexcept override {
    if constexpr (MapsMemory<Runtime>) {
      if (Runtime::MemUnmap(pointer, bytes) != rt::kSuccess) ForgetLastError<Runtime>();
    }
  }

  StreamHandle CreateStream(int priority) override {
    rt::Stream stream = nullptr;
    UseDevice();
    if constexpr (rt::HasStreamCreateWithPriority<Runtime>) {
      Check<Runtime>(Runtime::StreamCreateWithPriority(&stream, rt::kStreamNonBlocking, priority),
                     "StreamCreateWithPriority");
    } else if constexpr (rt::HasStreamCreateWithFlags<Runtime>) {
      Check<Runtime>(Runtime::StreamCreateWithFlags(&stream, rt::kStreamNonBlocking),
                     "StreamCreateWithFlags");
    } else {
      Check<Runtime>(Runtime::StreamCreate(&stream), "StreamCreate");
    }
    return stream;
  }

  void DestroyStream(StreamHandle stream) noexcept override {
    if (Runtime::StreamDestroy(StreamOf(stream)) != rt::kSuccess) ForgetLastError<Runtime>();
  }

  void SynchronizeStream(StreamHandle stream) override {
    UseDevice();
    Check<Runtime>(Runtime::StreamSynchronize(StreamOf(stream)), "StreamSynchronize");
  }

  EventHandle CreateEvent() override {
    rt::Event event = nullptr;
    UseDevice();
    Check<Runtime>(Runtime::EventCreate(&event), "EventCreate");
    return event;
  }

  void DestroyEvent(EventHandle event) noexcept override {
    if (Runtime::EventDestroy(EventOf(event)) != rt::kSuccess) ForgetLastError<Runtime>();
  }

  void RecordEvent(EventHandle event, StreamHandle stream) override {
    UseDevice();
    Check<Runtime>(Runtime::EventRecord(EventOf(event), StreamOf(stream)), "EventRecord");
  }

  void StreamWaitEvent(StreamHandle stream, EventHandle event) override {
    UseDevice();
    Check<Runtime>(
        Runtime::StreamWaitEvent(StreamOf(stream), EventOf(event), rt::kEventWaitDefault),
        "StreamWaitEvent");
  }

  bool QueryEvent(EventHandle event) override {
    const rt::Error error = Runtime::EventQuery(EventOf(event));
    if (error == rt::kErrorNotReady) return false;
    Check<Runtime>(error, "EventQuery");
    return true;
  }

  void SynchronizeEvent(EventHandle event) override {
    Check<Runtime>(Runtime::EventSynchronize(EventOf(event)), "EventSynchronize");
  }

  float ElapsedMilliseconds(EventHandle start, EventHandle end) override {
    float milliseconds = 0;
    Check<Runtime>(Runtime::EventElapsedTime(&milliseconds, EventOf(start), EventOf(end)),
                   "EventElapsedTime");
    return milliseconds;
  }

  bool IsCapturing(StreamHandle stream) const override {
    if constexpr (rt::HasStreamIsCapturing<Runtime>) {
      rt::StreamCaptureStatus status = rt::kStreamCaptureStatusNone;
      const rt::Error error = Runtime::StreamIsCapturing(StreamOf(stream), &status);
      if (error == rt::kSuccess) return status != rt::kStreamCaptureStatusNone;
      // The default stream cannot capture, and says so while another stream does.
      ForgetLastError<Runtime>();
      if (error != rt::kErrorStreamCaptureImplicit)
        ThrowRuntimeError<Runtime>(error, "StreamIsCapturing");
      return false;
    }
    return captured_stream && *captured_stream == stream;
  }

  bool CanCapture() const noexcept override { return rt::GraphRuntime<Runtime>; }

  void BeginCapture(StreamHandle stream) override {
    if constexpr (rt::GraphRuntime<Runtime>) {
      UseDevice();
      // Relaxed: the work of a capture may be the first that needs more memory, loads a module or
      // makes a library's handle. What would need the captured work's results fails in any mode.
      Check<Runtime>(Runtime::StreamBeginCapture(StreamOf(stream), rt::kStreamCaptureModeRelaxed),
                     "StreamBeginCapture");
      if constexpr (!rt::HasStreamIsCapturing<Runtime>) captured_stream = stream;
    } else {
      DeviceGuardImpl::BeginCapture(stream);
    }
  }

  GraphHandle EndCapture(StreamHandle stream) override {
    if constexpr (rt::GraphRuntime<Runtime>) {
      rt::Graph graph = nullptr;
      rt::GraphExec executable = nullptr;
      captured_stream.reset();
      Check<Runtime>(Runtime::StreamEndCapture(StreamOf(stream), &graph), "StreamEndCapture");
      const rt::Error error = Runtime::GraphInstantiate(&executable, graph, 0);
      if (Runtime::GraphDestroy(graph) != rt::kSuccess) ForgetLastError<Runtime>();
      Check<Runtime>(error, "GraphInstantiate");
      return executable;
    } else {
      return DeviceGuardImpl::EndCapture(stream);
    }
  }

  void LaunchGraph(GraphHandle graph, StreamHandle stream) override {
    if constexpr (rt::GraphRuntime<Runtime>) {
      UseDevice();
      Check<Runtime>(Runtime::GraphLaunch(static_cast<rt::GraphExec>(graph), StreamOf(stream)),
                     "GraphLaunch");
    } else {
      DeviceGuardImpl::LaunchGraph(graph, stream);
    }
  }

  void DestroyGraph(GraphHandle graph) noexcept override {
    if constexpr (rt::GraphRuntime<Runtime>) {
      if (Runtime::GraphExecDestroy(static_cast<rt::GraphExec>(graph)) != rt::kSuccess)
        ForgetLastError<Runtime>();
    } else {
      DeviceGuardImpl::DestroyGraph(graph);
    }
  }

 private:
  static rt::Stream StreamOf(StreamHandle stream) { return static_cast<rt::Stream>(stream); }
  static rt::Event EventOf(EventHandle event) { return static_cast<rt::Event>(event); }

  static constexpr int kNone = -1;
  /// The device that is to become the runtime's current one when the calling thread uses it.
  static inline constinit thread_local int awaited_device = kNone;
  /// Where the runtime does not say which stream the calling thread captures.
  static inline constinit thread_local std::optional<StreamHandle> captured_stream;

  static void MakeCurrent(int index) {
    if constexpr (KnowsDevicesInUse<Runtime>) {
      if (!Runtime::IsInUse(index)) {
        awaited_device = index;
        return;
      }
    }
    Check<Runtime>(Runtime::SetDevice(index), "SetDevice");
    awaited_device = kNone;
  }

  static int Current() {
    if (awaited_device != kNone) return awaited_device;
    int index = 0;
    Check<Runtime>(Runtime::GetDevice(&index), "GetDevice");
    return index;
  }

  /// Comes before what is done on the current device.
  static void UseDevice() {
    if (awaited_device == kNone) [[likely]]
      return;
    Check<Runtime>(Runtime::SetDevice(awaited_device), "SetDevice");
    awaited_device = kNone;
  }

  /// Makes a device current for a scope.
  class ScopedDevice {
   public:
    explicit ScopedDevice(int index) : previous_(Current()) {
      if (index != previous_) MakeCurrent(index);
    }
    ~ScopedDevice() {
      try {
        MakeCurrent(previous_);
      } catch (const Error&) {
        // A device that was current a moment ago is lost; the next call on it says so.
      }
    }
    ScopedDevice(const ScopedDevice&) = delete;
    ScopedDevice& operator=(const ScopedDevice&) = delete;

   private:
    const int previous_;
  };

  /// What a runtime without copies between devices can do: wait for the stream, then copy twice.
  static void CopyThroughHost(void* destination, int destination_device, const void* source,
                              int source_device, std::size_t bytes, StreamHandle stream) {
    Check<Runtime>(Runtime::StreamSynchronize(StreamOf(stream)), "StreamSynchronize");
    const auto buffer = std::make_unique<std::byte[]>(bytes);
    const auto copy = [bytes](int device, void* to, const void* from, rt::MemcpyKind kind) {
      const ScopedDevice current(device);
      Check<Runtime>(Runtime::Memcpy(to, from, bytes, kind), "Memcpy");
    };
    copy(source_device, buffer.get(), source, rt::kMemcpyDeviceToHost);
    copy(destination_device, destination, buffer.get(), rt::kMemcpyHostToDevice);
  }

  static rt::MemcpyKind KindOf(CopyKind kind) {
    switch (kind) {
      case CopyKind::kHostToDevice:
        return rt::kMemcpyHostToDevice;
      case CopyKind::kDeviceToHost:
        return rt::kMemcpyDeviceToHost;
      case CopyKind::kDeviceToDevice:
        break;
    }
    return rt::kMemcpyDeviceToDevice;
  }

  /// False when there is no memory left, which is an answer and not a failure.
  static bool CheckAllocation(rt::Error error, const char* call) {
    if (error == rt::kErrorMemoryAllocation) {
      ForgetLastError<Runtime>();
      return false;
    }
    Check<Runtime>(error, call);
    return true;
  }
};

}  // namespace infini_train::backend
