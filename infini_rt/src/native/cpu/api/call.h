#pragma once

#include <cstdint>
#include <new>

#include <infini/rt/cpu/runtime.h>
#include <infini/rt/last_error.h>

#include "native/cpu/engine/context.h"
#include "native/cpu/engine/device_state.h"
#include "native/cpu/engine/event.h"
#include "native/cpu/engine/op.h"
#include "native/cpu/engine/stream.h"
#include "native/cpu/graph/capture.h"

/// What the entry points of the CPU runtime share.
namespace infini::rt::cpu {

using runtime::Error;

/// Runs the body of a call unless the device has failed, the process is exiting or the caller is
/// inside a host function, and keeps the thread's last error. Nothing is thrown out of it.
template <typename Body>
Error Call(Body body) noexcept {
  Error error = Context::Get().fault();
  if (error == runtime::kSuccess && InsideCallback()) error = runtime::kErrorNotPermitted;
  if (error == runtime::kSuccess) {
    try {
      error = body();
    } catch (const std::bad_alloc&) {
      error = runtime::kErrorMemoryAllocation;
    }
  }
  return runtime::detail::RecordError(Device::Type::kCpu, error);
}

/// The stream behind a handle, the default streams included, or null for a destroyed one.
inline Stream* Resolve(runtime::Stream handle) {
  Context& context = Context::Get();
  if (handle == nullptr || handle == runtime::kStreamLegacy) {
    return &context.CurrentDevice().legacy_stream();
  }
  if (handle == runtime::kStreamPerThread) return &context.PerThreadStream();
  auto* stream = reinterpret_cast<Stream*>(handle);
  return stream->open() ? stream : nullptr;
}

inline Event* Resolve(runtime::Event handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return event != nullptr && event->open() ? event : nullptr;
}

/// Waits on the host for a point of a stream; memory pools return what they may then, and a device
/// fault up to that point is reported.
inline Error HostWait(Stream& stream, std::uint64_t position) {
  RefPtr<Stream> keep(&stream);
  stream.WaitUntil(position);
  stream.device().pool().TrimToThreshold();
  return Context::Get().fault();
}

}  // namespace infini::rt::cpu
