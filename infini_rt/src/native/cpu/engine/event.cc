#include "native/cpu/engine/event.h"

#include <chrono>
#include <utility>

namespace infini::rt::cpu {

void Event::Init(DeviceState* device, bool timing) {
  device_ = device;
  timing_ = timing;
}

void Event::Reset() {
  stream_ = {};
  position_ = 0;
  // Generations go on counting: a late `Reached` of an earlier life cannot exist, since queued
  // records hold references.
  capture_.reset();
  capture_nodes_.clear();
}

bool Event::Record(Stream& stream) {
  std::lock_guard lock(mutex_);
  ++generation_;
  std::uint64_t position = stream.Enqueue(timing_ ? Op::Record(this, generation_) : Op::Nop());
  if (position == 0) return false;
  stream_ = RefPtr<Stream>(&stream);
  position_ = position;
  capture_.reset();
  capture_nodes_.clear();
  return true;
}

Event::Point Event::point() {
  std::lock_guard lock(mutex_);
  return {stream_, position_, capture_ != nullptr};
}

void Event::WaitLatest() {
  Point latest = point();
  if (latest.stream) latest.stream->WaitUntil(latest.position);
}

void Event::Reached(std::uint64_t generation) {
  std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::steady_clock::now().time_since_epoch())
                         .count();
  std::lock_guard lock(reached_mutex_);
  if (generation <= reached_generation_) return;
  reached_generation_ = generation;
  reached_at_ = now;
}

std::int64_t Event::timestamp() {
  std::lock_guard lock(reached_mutex_);
  return reached_at_;
}

void Event::RecordCapture(std::shared_ptr<CaptureSession> session,
                          std::vector<std::uint32_t> nodes) {
  std::lock_guard lock(mutex_);
  ++generation_;
  stream_ = {};
  capture_ = std::move(session);
  capture_nodes_ = std::move(nodes);
}

std::shared_ptr<CaptureSession> Event::capture(std::vector<std::uint32_t>* nodes) {
  std::lock_guard lock(mutex_);
  if (nodes != nullptr && capture_) *nodes = capture_nodes_;
  return capture_;
}

}  // namespace infini::rt::cpu
