#include "native/cpu/engine/device_state.h"

#include <algorithm>
#include <cstdlib>

#include "native/cpu/memory/allocation_table.h"

namespace infini::rt::cpu {

DeviceState::DeviceState(int index, std::size_t total_memory)
    : index_(index),
      total_memory_(total_memory),
      legacy_stream_(CreateStream(Stream::Role::kLegacy, 0)),
      pool_(this) {}

Stream* DeviceState::CreateStream(Stream::Role role, int priority) {
  Stream* stream = Stream::Create();
  stream->Init(this, role, priority);
  std::lock_guard lock(streams_mutex_);
  streams_.push_back(stream);
  return stream;
}

void DeviceState::RemoveStream(Stream* stream) {
  std::lock_guard lock(streams_mutex_);
  streams_.erase(std::find(streams_.begin(), streams_.end(), stream));
}

void DeviceState::Synchronize(bool blocking_only) {
  std::vector<std::pair<RefPtr<Stream>, std::uint64_t>> points;
  ForEachStream([&](Stream& stream) {
    if (blocking_only && stream.role() == Stream::Role::kNonBlocking) return;
    if (!stream.Idle()) points.emplace_back(RefPtr<Stream>(&stream), stream.published());
  });
  for (auto& [stream, point] : points)
    stream->WaitUntil(point);
}

bool DeviceState::Idle(bool blocking_only) {
  bool idle = true;
  ForEachStream([&](Stream& stream) {
    if (blocking_only && stream.role() == Stream::Role::kNonBlocking) return;
    idle = idle && stream.Idle();
  });
  return idle;
}

bool DeviceState::Charge(std::size_t size) {
  std::size_t used = used_.load(std::memory_order_relaxed);
  do {
    if (size > total_memory_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + size, std::memory_order_relaxed));
  return true;
}

void* DeviceState::Allocate(std::size_t size) {
  if (!Charge(size)) return nullptr;
  void* ptr = AllocateAligned(size);
  if (ptr == nullptr) Discharge(size);
  return ptr;
}

void DeviceState::Deallocate(void* ptr, std::size_t size) {
  std::free(ptr);
  Discharge(size);
}

}  // namespace infini::rt::cpu
