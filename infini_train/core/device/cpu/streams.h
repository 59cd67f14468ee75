#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include "infini_train/core/device/device_guard.h"

namespace infini_train {

/// Streams of the CPU; cpu_stream.h says what runs on them.
StreamHandle CreateCpuStream();
/// Waits for what is on the stream.
void DestroyCpuStream(StreamHandle stream) noexcept;
void SynchronizeCpuStream(StreamHandle stream);
/// All of them.
void SynchronizeCpuStreams();

/// A place in a stream that work passes.
class CpuMark {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CpuMark(bool done) : done_(done) {}

  void Pass() {
    time_ = Clock::now();
    done_.store(true, std::memory_order_release);
    done_.notify_all();
  }
  bool IsDone() const { return done_.load(std::memory_order_acquire); }
  void Wait() const { done_.wait(false, std::memory_order_acquire); }
  /// When it was passed; nothing before that.
  std::optional<Clock::time_point> time() const { return IsDone() ? time_ : std::nullopt; }

 private:
  std::atomic<bool> done_;
  std::optional<Clock::time_point> time_;
};

/// An event: the mark of its last record. One that was never recorded is done, at no time.
class CpuEvent {
 public:
  void Record(StreamHandle stream);
  const std::shared_ptr<CpuMark>& mark() const { return mark_; }

 private:
  std::shared_ptr<CpuMark> mark_ = std::make_shared<CpuMark>(true);
};

}  // namespace infini_train
