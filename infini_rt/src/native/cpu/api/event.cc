#include "native/cpu/api/call.h"

namespace infini::rt::runtime {
namespace {

using cpu::Call;
using cpu::Context;
using cpu::Resolve;
using Cpu = Runtime<Device::Type::kCpu>;

constexpr float kNanosecondsPerMillisecond = 1e6f;

Error Create(Event* event, unsigned int flags) {
  constexpr unsigned int kKnown = kEventBlockingSync | kEventDisableTiming | kEventInterprocess;
  bool interprocess = (flags & kEventInterprocess) != 0;
  bool timing = (flags & kEventDisableTiming) == 0;
  if (event == nullptr || (flags & ~kKnown) != 0 || (interprocess && timing)) {
    return kErrorInvalidValue;
  }
  cpu::Event* created = cpu::Event::Create();
  created->Init(&Context::Get().CurrentDevice(), timing);
  *event = reinterpret_cast<Event>(created);
  return kSuccess;
}

}  // namespace

Error Cpu::EventCreate(Event* event) {
  return Call([&] { return Create(event, kEventDefault); });
}

Error Cpu::EventCreateWithFlags(Event* event, unsigned int flags) {
  return Call([&] { return Create(event, flags); });
}

Error Cpu::EventRecord(Event event, Stream stream) {
  return Call([&] {
    cpu::Event* target = Resolve(event);
    cpu::Stream* source = Resolve(stream);
    if (target == nullptr || source == nullptr || &target->device() != &source->device()) {
      return kErrorInvalidResourceHandle;
    }
    if (source->capturing.load(std::memory_order_acquire)) {
      return cpu::RecordInCapture(*source, *target);
    }
    if (source->role() == cpu::Stream::Role::kLegacy) {
      Error error = cpu::CheckLegacyUse(source->device());
      if (error != kSuccess) return error;
    }
    return target->Record(*source) ? kSuccess : kErrorMemoryAllocation;
  });
}

Error Cpu::EventQuery(Event event) {
  return Call([&] {
    cpu::Event* target = Resolve(event);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    cpu::Event::Point point = target->point();
    if (point.captured) return cpu::RefuseCapturedEvent(*target);
    return point.Done() ? kSuccess : kErrorNotReady;
  });
}

Error Cpu::EventSynchronize(Event event) {
  return Call([&] {
    cpu::Event* target = Resolve(event);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    cpu::Event::Point point = target->point();
    if (point.captured) return cpu::RefuseCapturedEvent(*target);
    if (!point.recorded()) return kSuccess;
    return cpu::HostWait(*point.stream.get(), point.position);
  });
}

Error Cpu::EventDestroy(Event event) {
  return Call([&] {
    auto* target = reinterpret_cast<cpu::Event*>(event);
    if (target == nullptr || !target->Shut()) return kErrorInvalidResourceHandle;
    target->Unref();
    return kSuccess;
  });
}

Error Cpu::EventElapsedTime(float* ms, Event start, Event end) {
  return Call([&] {
    if (ms == nullptr) return kErrorInvalidValue;
    cpu::Event* first = Resolve(start);
    cpu::Event* second = Resolve(end);
    if (first == nullptr || second == nullptr || !first->timing() || !second->timing()) {
      return kErrorInvalidResourceHandle;
    }
    cpu::Event::Point from = first->point();
    cpu::Event::Point to = second->point();
    if (from.captured || to.captured) return kErrorCapturedEvent;
    if (!from.recorded() || !to.recorded()) return kErrorInvalidResourceHandle;
    if (!from.Done() || !to.Done()) return kErrorNotReady;
    *ms = static_cast<float>(second->timestamp() - first->timestamp()) / kNanosecondsPerMillisecond;
    return kSuccess;
  });
}

}  // namespace infini::rt::runtime
