#include <algorithm>
#include <utility>

#include "native/cpu/api/call.h"

namespace infini::rt::runtime {
namespace {

using cpu::Call;
using cpu::Context;
using cpu::Op;
using cpu::Resolve;
using Cpu = Runtime<Device::Type::kCpu>;

Error Create(Stream* stream, unsigned int flags, int priority) {
  if (stream == nullptr || (flags & ~kStreamNonBlocking) != 0) return kErrorInvalidValue;
  auto role = (flags & kStreamNonBlocking) != 0 ? cpu::Stream::Role::kNonBlocking
                                                : cpu::Stream::Role::kBlocking;
  priority = std::clamp(priority, cpu::kGreatestPriority, cpu::kLeastPriority);
  *stream = reinterpret_cast<Stream>(Context::Get().CurrentDevice().CreateStream(role, priority));
  return kSuccess;
}

}  // namespace

Error Cpu::StreamCreate(Stream* stream) {
  return Call([&] { return Create(stream, kStreamDefault, cpu::kLeastPriority); });
}

Error Cpu::StreamCreateWithFlags(Stream* stream, unsigned int flags) {
  return Call([&] { return Create(stream, flags, cpu::kLeastPriority); });
}

Error Cpu::StreamCreateWithPriority(Stream* stream, unsigned int flags, int priority) {
  return Call([&] { return Create(stream, flags, priority); });
}

Error Cpu::StreamDestroy(Stream stream) {
  return Call([&] {
    if (stream == nullptr || stream == kStreamLegacy || stream == kStreamPerThread) {
      return kErrorInvalidResourceHandle;
    }
    auto* target = reinterpret_cast<cpu::Stream*>(stream);
    if (!target->Shut()) return kErrorInvalidResourceHandle;
    if (target->capturing.load(std::memory_order_acquire)) cpu::AbandonCapture(*target);
    target->Close();
    return kSuccess;
  });
}

Error Cpu::StreamSynchronize(Stream stream) {
  return Call([&] {
    cpu::Stream* target = Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    Error error = cpu::CheckUncapturable(*target);
    if (error != kSuccess) return error;
    if (target->role() == cpu::Stream::Role::kLegacy) {
      target->device().Synchronize(/*blocking_only=*/true);
    }
    return cpu::HostWait(*target, target->published());
  });
}

Error Cpu::StreamQuery(Stream stream) {
  return Call([&] {
    cpu::Stream* target = Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    Error error = cpu::CheckUncapturable(*target);
    if (error != kSuccess) return error;
    bool idle = target->role() == cpu::Stream::Role::kLegacy
                    ? target->device().Idle(/*blocking_only=*/true)
                    : target->Idle();
    return idle ? kSuccess : kErrorNotReady;
  });
}

Error Cpu::StreamWaitEvent(Stream stream, Event event, unsigned int flags) {
  return Call([&] {
    if ((flags & ~kEventWaitExternal) != 0) return kErrorInvalidValue;
    cpu::Stream* target = Resolve(stream);
    cpu::Event* awaited = Resolve(event);
    if (target == nullptr || awaited == nullptr) return kErrorInvalidResourceHandle;
    bool external = flags == kEventWaitExternal;
    bool capturing = target->capturing.load(std::memory_order_acquire);
    if (external && !capturing) return kErrorIllegalState;
    cpu::Event::Point point = awaited->point();
    if (capturing || point.captured) return cpu::WaitInCapture(*target, *awaited, external);
    if (point.Done() || point.stream.get() == target) {
      return target->role() == cpu::Stream::Role::kLegacy ? cpu::CheckLegacyUse(target->device())
                                                          : kSuccess;
    }
    return cpu::Submit(*target, Op::Wait(point.stream.get(), point.position));
  });
}

Error Cpu::LaunchHostFunc(Stream stream, HostFn fn, void* user_data) {
  return Call([&] {
    if (fn == nullptr) return kErrorInvalidValue;
    cpu::Stream* target = Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    return cpu::Submit(*target, Op::HostFunction(fn, user_data));
  });
}

Error Cpu::LaunchKernel(KernelFunction function, const void* args, std::size_t args_size,
                        Stream stream) {
  return Call([&] {
    if (function == nullptr || (args == nullptr && args_size > 0)) return kErrorInvalidValue;
    cpu::Stream* target = Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    return cpu::Submit(*target, Op::Kernel(function, args, args_size));
  });
}

}  // namespace infini::rt::runtime
