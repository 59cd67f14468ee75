#pragma once

#include <infini/rt/types.h>

/// What bindings decide before they call the vendor.
namespace infini::rt::runtime::detail {

/// Null or `kStreamLegacy`: the vendor's default stream.
inline bool IsDefaultStream(Stream stream) {
  return stream == nullptr || stream == kStreamLegacy;
}

/// A handle that stands for a stream which cannot be destroyed.
inline bool IsReservedStream(Stream stream) {
  return IsDefaultStream(stream) || stream == kStreamPerThread;
}

/// The direction is one of the enumerators.
inline bool IsMemcpyKind(MemcpyKind kind) {
  return kind >= kMemcpyHostToHost && kind <= kMemcpyDefault;
}

/// The flags of an event are known and go together.
inline bool AreEventFlags(unsigned int flags) {
  bool known = (flags & ~(kEventBlockingSync | kEventDisableTiming | kEventInterprocess)) == 0;
  return known && ((flags & kEventInterprocess) == 0 || (flags & kEventDisableTiming) != 0);
}

inline bool IsCaptureMode(StreamCaptureMode mode) {
  return mode >= kStreamCaptureModeGlobal && mode <= kStreamCaptureModeRelaxed;
}

/// The arguments are those of an instantiation without options, which older forms of the call take.
inline bool CanInstantiate(const GraphExec* graph_exec, Graph graph, unsigned long long flags) {
  return graph_exec != nullptr && graph != nullptr && flags == 0;
}

}  // namespace infini::rt::runtime::detail
