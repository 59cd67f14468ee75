#include "native/cpu/graph/capture.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "native/cpu/engine/device_state.h"
#include "native/cpu/engine/event.h"

namespace infini::rt::cpu {
namespace {

using Session = std::shared_ptr<CaptureSession>;

std::mutex capture_mutex;
// Read without the mutex by calls that have nothing to do with captures if there are none.
std::atomic<int> active_sessions{0};

// Sessions between begin and end; never destroyed, as calls may come from static destructors.
std::vector<Session>& Sessions() {
  static auto& sessions = *new std::vector<Session>;
  return sessions;
}

bool IsBlocking(const Stream& stream) {
  return stream.role() == Stream::Role::kBlocking;
}

void Join(const Session& session, Stream& stream, std::vector<std::uint32_t> tail) {
  stream.capture = session;
  stream.capture_tail = std::move(tail);
  stream.capturing.store(true, std::memory_order_release);
  session->streams.emplace_back(&stream);
  if (IsBlocking(stream)) stream.device().blocking_captures.fetch_add(1);
}

void Leave(Stream& stream) {
  stream.capturing.store(false, std::memory_order_release);
  stream.capture.reset();
  stream.capture_tail.clear();
  if (IsBlocking(stream)) stream.device().blocking_captures.fetch_sub(1);
}

// Takes all streams out of the session and returns the graph, which the session then lets go.
RefPtr<GraphBody> EndSession(const Session& session) {
  for (auto& stream : session->streams)
    Leave(*stream.get());
  session->streams.clear();
  session->ended = true;
  auto& sessions = Sessions();
  sessions.erase(std::find(sessions.begin(), sessions.end(), session));
  active_sessions.fetch_sub(1);
  return std::move(session->body);
}

template <typename Selects>
bool InvalidateWhere(Selects selects) {
  bool any = false;
  for (auto& session : Sessions()) {
    if (!selects(*session)) continue;
    session->invalidated = true;
    any = true;
  }
  return any;
}

bool TakesPart(const CaptureSession& session, const DeviceState& device, bool blocking_only) {
  return std::any_of(session.streams.begin(), session.streams.end(), [&](const auto& stream) {
    return &stream->device() == &device && (!blocking_only || IsBlocking(*stream.get()));
  });
}

// The stream's session, ready for another node, or the error that says why not. The stream may have
// left its capture since the caller looked; then the session is null and the error is success.
runtime::Error OpenSession(Stream& stream, Session* session) {
  *session = stream.capture;
  if (*session && (*session)->invalidated) return runtime::kErrorStreamCaptureInvalidated;
  return runtime::kSuccess;
}

void AddNode(Stream& stream, const Op& op) {
  std::uint32_t node = stream.capture->body->Add(op, std::move(stream.capture_tail));
  stream.capture_tail = {node};
}

void Merge(std::vector<std::uint32_t>& tail, const std::vector<std::uint32_t>& nodes) {
  for (std::uint32_t node : nodes) {
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
}

}  // namespace

runtime::Error Submit(Stream& stream, const Op& op, std::uint64_t* position) {
  if (position != nullptr) *position = 0;
  if (stream.capturing.load(std::memory_order_acquire)) {
    std::lock_guard lock(capture_mutex);
    Session session;
    runtime::Error error = OpenSession(stream, &session);
    if (error != runtime::kSuccess) {
      op.Release();
      return error;
    }
    if (session) {
      AddNode(stream, op);
      return runtime::kSuccess;
    }
  }
  if (stream.role() == Stream::Role::kLegacy) {
    runtime::Error error = CheckLegacyUse(stream.device());
    if (error != runtime::kSuccess) {
      op.Release();
      return error;
    }
  }
  std::uint64_t enqueued = stream.Enqueue(op);
  if (enqueued == 0) return runtime::kErrorMemoryAllocation;
  if (position != nullptr) *position = enqueued;
  return runtime::kSuccess;
}

runtime::Error BeginCapture(Stream& stream, runtime::StreamCaptureMode mode) {
  if (stream.role() == Stream::Role::kLegacy) return runtime::kErrorStreamCaptureUnsupported;
  std::lock_guard lock(capture_mutex);
  if (stream.capture) return runtime::kErrorIllegalState;
  auto session = std::make_shared<CaptureSession>();
  session->mode = mode;
  session->owner = std::this_thread::get_id();
  session->origin = &stream;
  GraphBody* body = GraphBody::Create();
  session->body = RefPtr<GraphBody>(body);
  body->Unref();
  Sessions().push_back(session);
  active_sessions.fetch_add(1);
  Join(session, stream, {});
  return runtime::kSuccess;
}

runtime::Error EndCapture(Stream& stream, GraphBody** body) {
  std::lock_guard lock(capture_mutex);
  Session session = stream.capture;
  if (!session) return runtime::kErrorIllegalState;
  if (session->mode != runtime::kStreamCaptureModeRelaxed &&
      session->owner != std::this_thread::get_id()) {
    EndSession(session);
    return runtime::kErrorStreamCaptureWrongThread;
  }
  if (session->origin != &stream) return runtime::kErrorStreamCaptureUnmatched;
  std::vector<std::uint32_t> tails = session->orphaned;
  for (auto& joined : session->streams)
    Merge(tails, joined->capture_tail);
  bool covered = session->body->Covers(stream.capture_tail, tails);
  bool invalidated = session->invalidated;
  RefPtr<GraphBody> finished = EndSession(session);
  if (invalidated) return runtime::kErrorStreamCaptureInvalidated;
  if (!covered) return runtime::kErrorStreamCaptureUnjoined;
  finished->Ref();
  *body = finished.get();
  return runtime::kSuccess;
}

runtime::Error CaptureStatus(Stream& stream, runtime::StreamCaptureStatus* status) {
  if (stream.role() == Stream::Role::kLegacy && stream.device().blocking_captures.load() > 0) {
    return runtime::kErrorStreamCaptureImplicit;
  }
  std::lock_guard lock(capture_mutex);
  *status = !stream.capture               ? runtime::kStreamCaptureStatusNone
            : stream.capture->invalidated ? runtime::kStreamCaptureStatusInvalidated
                                          : runtime::kStreamCaptureStatusActive;
  return runtime::kSuccess;
}

runtime::Error RecordInCapture(Stream& stream, Event& event) {
  std::lock_guard lock(capture_mutex);
  Session session;
  runtime::Error error = OpenSession(stream, &session);
  if (error != runtime::kSuccess) return error;
  if (!session) return runtime::kErrorIllegalState;
  event.RecordCapture(session, stream.capture_tail);
  return runtime::kSuccess;
}

runtime::Error WaitInCapture(Stream& stream, Event& event, bool external) {
  std::lock_guard lock(capture_mutex);
  std::vector<std::uint32_t> nodes;
  Session recorded = event.capture(&nodes);
  Session session;
  runtime::Error error = OpenSession(stream, &session);
  if (error != runtime::kSuccess) return error;
  if (!recorded) {
    if (!session) return runtime::kErrorIllegalState;
    if (external) {
      AddNode(stream, Op::WaitExternal(&event));
      return runtime::kSuccess;
    }
    if (!event.point().recorded()) return runtime::kSuccess;
    session->invalidated = true;
    return runtime::kErrorStreamCaptureIsolation;
  }
  if (recorded->ended) return runtime::kErrorCapturedEvent;
  if (recorded->invalidated) return runtime::kErrorStreamCaptureInvalidated;
  if (session && session != recorded) {
    session->invalidated = recorded->invalidated = true;
    return runtime::kErrorStreamCaptureMerge;
  }
  if (session) {
    Merge(stream.capture_tail, nodes);
    return runtime::kSuccess;
  }
  if (stream.role() == Stream::Role::kLegacy) {
    recorded->invalidated = true;
    return runtime::kErrorStreamCaptureImplicit;
  }
  Join(recorded, stream, std::move(nodes));
  return runtime::kSuccess;
}

runtime::Error AllocateInCapture(Stream& stream, std::size_t size, void** ptr) {
  std::lock_guard lock(capture_mutex);
  Session session;
  runtime::Error error = OpenSession(stream, &session);
  if (error != runtime::kSuccess) return error;
  if (!session) return runtime::kErrorIllegalState;
  void* allocated = session->body->Allocate(size, stream.device());
  if (allocated == nullptr) return runtime::kErrorMemoryAllocation;
  AddNode(stream, Op::Nop());
  *ptr = allocated;
  return runtime::kSuccess;
}

runtime::Error FreeInCapture(Stream& stream, void* ptr) {
  std::lock_guard lock(capture_mutex);
  Session session;
  runtime::Error error = OpenSession(stream, &session);
  if (error != runtime::kSuccess) return error;
  if (!session) return runtime::kErrorIllegalState;
  if (!session->body->FreeInGraph(ptr)) return runtime::kErrorInvalidValue;
  AddNode(stream, Op::Nop());
  return runtime::kSuccess;
}

runtime::Error CheckUnsafeCall() {
  if (active_sessions.load(std::memory_order_relaxed) == 0) return runtime::kSuccess;
  std::lock_guard lock(capture_mutex);
  bool forbidden = InvalidateWhere([self = std::this_thread::get_id()](const auto& session) {
    return session.mode == runtime::kStreamCaptureModeGlobal ||
           (session.mode == runtime::kStreamCaptureModeThreadLocal && session.owner == self);
  });
  return forbidden ? runtime::kErrorStreamCaptureUnsupported : runtime::kSuccess;
}

runtime::Error CheckLegacyUse(DeviceState& device) {
  if (device.blocking_captures.load(std::memory_order_relaxed) == 0) return runtime::kSuccess;
  std::lock_guard lock(capture_mutex);
  bool depends = InvalidateWhere(
      [&](const auto& session) { return TakesPart(session, device, /*blocking_only=*/true); });
  return depends ? runtime::kErrorStreamCaptureImplicit : runtime::kSuccess;
}

runtime::Error CheckUncapturable(Stream& stream) {
  if (stream.role() == Stream::Role::kLegacy) return CheckLegacyUse(stream.device());
  if (!stream.capturing.load(std::memory_order_acquire)) return runtime::kSuccess;
  std::lock_guard lock(capture_mutex);
  if (!stream.capture) return runtime::kSuccess;
  stream.capture->invalidated = true;
  return runtime::kErrorStreamCaptureUnsupported;
}

runtime::Error CheckSynchronize(DeviceState& device) {
  if (active_sessions.load(std::memory_order_relaxed) == 0) return runtime::kSuccess;
  std::lock_guard lock(capture_mutex);
  bool captures = InvalidateWhere(
      [&](const auto& session) { return TakesPart(session, device, /*blocking_only=*/false); });
  return captures ? runtime::kErrorStreamCaptureUnsupported : runtime::kSuccess;
}

runtime::Error RefuseCapturedEvent(Event& event) {
  std::lock_guard lock(capture_mutex);
  if (Session session = event.capture(nullptr)) session->invalidated = true;
  return runtime::kErrorCapturedEvent;
}

void AbandonCapture(Stream& stream) {
  std::lock_guard lock(capture_mutex);
  Session session = stream.capture;
  if (!session) return;
  if (session->origin == &stream) {
    EndSession(session);
    return;
  }
  Merge(session->orphaned, stream.capture_tail);
  Leave(stream);
  std::erase_if(session->streams, [&](const auto& joined) { return joined.get() == &stream; });
}

}  // namespace infini::rt::cpu
