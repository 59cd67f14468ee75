#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "native/cpu/engine/handle.h"
#include "native/cpu/engine/stream.h"

namespace infini::rt::cpu {

class CaptureSession;
class DeviceState;

/// A point of a stream: the latest record is (stream, position), and waiting for the event is
/// waiting for that position. Only the timestamp needs the worker to act. A generation tells
/// records apart, so that an older record that is reached later does not overwrite a newer one.
class Event : public HandleObject<Event> {
 public:
  /// Where the event stands: nothing recorded, a point of a stream, or a record inside a capture.
  struct Point {
    RefPtr<Stream> stream;
    std::uint64_t position = 0;
    bool captured = false;

    bool recorded() const { return static_cast<bool>(stream); }
    bool Done() const { return !stream || stream->completed() >= position; }
  };

  void Init(DeviceState* device, bool timing);
  void Reset();

  DeviceState& device() const { return *device_; }
  bool timing() const { return timing_; }

  /// Records the work in the stream so far; false if the queue is out of memory.
  bool Record(Stream& stream);
  Point point();
  /// Waits for the latest record.
  void WaitLatest();

  /// The worker has reached the record of this generation.
  void Reached(std::uint64_t generation);
  /// When the latest record was reached, in nanoseconds; valid once that record is done.
  std::int64_t timestamp();

  /// Record inside a capture: the session and the nodes that the stream's next node would depend
  /// on.
  void RecordCapture(std::shared_ptr<CaptureSession> session, std::vector<std::uint32_t> nodes);
  /// The session of the latest record, or null if that was an ordinary one.
  std::shared_ptr<CaptureSession> capture(std::vector<std::uint32_t>* nodes);

 private:
  DeviceState* device_ = nullptr;
  bool timing_ = true;

  std::mutex mutex_;
  RefPtr<Stream> stream_;
  std::uint64_t position_ = 0;
  std::uint64_t generation_ = 0;
  std::shared_ptr<CaptureSession> capture_;
  std::vector<std::uint32_t> capture_nodes_;

  // Apart, so that the worker never meets a thread that records.
  std::mutex reached_mutex_;
  std::uint64_t reached_generation_ = 0;
  std::int64_t reached_at_ = 0;
};

}  // namespace infini::rt::cpu
