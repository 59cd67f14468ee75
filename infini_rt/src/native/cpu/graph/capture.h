#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <infini/rt/types.h>

#include "native/cpu/engine/handle.h"
#include "native/cpu/engine/op.h"
#include "native/cpu/engine/stream.h"
#include "native/cpu/graph/graph.h"

/// Stream capture: the rules of what may be captured, what breaks a capture and with which code.
/// All state of captures, including that in streams, is guarded by one mutex inside this unit.
namespace infini::rt::cpu {

class DeviceState;
class Event;

/// One capture from begin to end, over all streams that took part.
class CaptureSession {
 public:
  runtime::StreamCaptureMode mode = runtime::kStreamCaptureModeGlobal;
  std::thread::id owner;
  Stream* origin = nullptr;
  RefPtr<GraphBody> body;
  std::vector<RefPtr<Stream>> streams;
  /// Last nodes of streams that were destroyed while they took part.
  std::vector<std::uint32_t> orphaned;
  bool invalidated = false;
  bool ended = false;
};

/// Enqueues an operation or, if the stream captures, makes it a node. Takes the operation over in
/// any case. `position` receives the place in the queue, or 0 if the operation became a node.
runtime::Error Submit(Stream& stream, const Op& op, std::uint64_t* position = nullptr);

runtime::Error BeginCapture(Stream& stream, runtime::StreamCaptureMode mode);
/// On success and only then `*body` receives the graph with one reference for the caller.
runtime::Error EndCapture(Stream& stream, GraphBody** body);
runtime::Error CaptureStatus(Stream& stream, runtime::StreamCaptureStatus* status);

/// Event record and wait where the stream captures or the event was recorded in a capture.
runtime::Error RecordInCapture(Stream& stream, Event& event);
runtime::Error WaitInCapture(Stream& stream, Event& event, bool external);

/// Stream-ordered memory of a capturing stream.
runtime::Error AllocateInCapture(Stream& stream, std::size_t size, void** ptr);
runtime::Error FreeInCapture(Stream& stream, void* ptr);

/// `kSuccess`, or the error of a call that captures in their modes forbid, such as `Malloc`; then
/// those captures are invalid.
runtime::Error CheckUnsafeCall();
/// The same for use of the legacy default stream, which must not depend on a capturing stream.
runtime::Error CheckLegacyUse(DeviceState& device);
/// The same for waiting for, asking about, or launching a graph into a stream.
runtime::Error CheckUncapturable(Stream& stream);
/// The same for waiting for all work of a device.
runtime::Error CheckSynchronize(DeviceState& device);
/// The error for asking about an event whose latest record is in a capture, which becomes invalid.
runtime::Error RefuseCapturedEvent(Event& event);

/// Takes a stream that is being destroyed out of its capture; the origin takes the capture along.
void AbandonCapture(Stream& stream);

}  // namespace infini::rt::cpu
