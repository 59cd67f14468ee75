#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "native/cpu/api/call.h"

namespace infini::rt::runtime {
namespace {

using cpu::Allocation;
using cpu::Call;
using cpu::Context;
using cpu::MemoryKind;
using cpu::Op;
using Cpu = Runtime<Device::Type::kCpu>;

// Up to this size a copy from ordinary host memory takes the bytes along and does not block.
constexpr std::size_t kStagingLimit = 64 * 1024;

/// One end of a copy: device, pinned or ordinary host memory.
struct Side {
  std::optional<Allocation> allocation;
  bool in_bounds;

  Side(const void* ptr, std::size_t count)
      : allocation(Context::Get().allocations().Find(ptr)),
        in_bounds(!allocation || count <= allocation->BytesFrom(ptr)) {}

  bool pinned() const { return allocation && allocation->kind == MemoryKind::kPinned; }
  bool pageable() const { return !allocation; }
  bool on_device() const { return allocation && !pinned(); }
  bool on(int device) const { return on_device() && allocation->device->index() == device; }
};

bool Fits(const Side& side, bool device) {
  if (!side.in_bounds) return false;
  return device ? !side.pageable() : !side.on_device();
}

// Checks both ends against the direction and finds whether the host must wait for the copy.
Error Validate(const Side& dst, const Side& src, MemcpyKind kind) {
  bool to_device = kind == kMemcpyHostToDevice || kind == kMemcpyDeviceToDevice;
  bool from_device = kind == kMemcpyDeviceToHost || kind == kMemcpyDeviceToDevice;
  if (kind == kMemcpyDefault) return dst.in_bounds && src.in_bounds ? kSuccess : kErrorInvalidValue;
  return Fits(dst, to_device) && Fits(src, from_device) ? kSuccess : kErrorInvalidValue;
}

// A copy of the source bytes that the operation owns.
Op Staged(void* dst, const void* src, std::size_t count) {
  void* staging = std::malloc(count);
  if (staging == nullptr) throw std::bad_alloc();
  std::memcpy(staging, src, count);
  Op op = Op::Copy(dst, staging, count);
  op.owns_memory = true;
  return op;
}

Error SubmitAndWait(cpu::Stream& stream, const Op& op) {
  std::uint64_t position = 0;
  Error error = cpu::Submit(stream, op, &position);
  if (error != kSuccess || position == 0) return error;
  return cpu::HostWait(stream, position);
}

Error CheckArguments(const void* dst, const void* src, std::size_t count, MemcpyKind kind) {
  if (kind < kMemcpyHostToHost || kind > kMemcpyDefault) return kErrorInvalidMemcpyDirection;
  if (count > 0 && (dst == nullptr || src == nullptr)) return kErrorInvalidValue;
  return kSuccess;
}

Error CopyAsync(void* dst, const void* src, std::size_t count, MemcpyKind kind,
                cpu::Stream& stream) {
  Side to(dst, count);
  Side from(src, count);
  Error error = Validate(to, from, kind);
  if (error != kSuccess) return error;
  if (stream.capturing.load(std::memory_order_acquire)) {
    return cpu::Submit(stream, Op::Copy(dst, src, count));
  }
  if (from.pageable() && !to.pageable()) {
    return count <= kStagingLimit ? cpu::Submit(stream, Staged(dst, src, count))
                                  : SubmitAndWait(stream, Op::Copy(dst, src, count));
  }
  bool host_to_host = !to.on_device() && !from.on_device();
  if (to.pageable() || host_to_host) return SubmitAndWait(stream, Op::Copy(dst, src, count));
  return cpu::Submit(stream, Op::Copy(dst, src, count));
}

Error Fill(void* ptr, int value, std::size_t count, cpu::Stream& stream, bool synchronous) {
  if (count == 0) return kSuccess;
  if (ptr == nullptr) return kErrorInvalidValue;
  Side target(ptr, count);
  if (!Fits(target, /*device=*/true)) return kErrorInvalidValue;
  Op op = Op::Fill(ptr, value, count);
  return synchronous && target.pinned() ? SubmitAndWait(stream, op) : cpu::Submit(stream, op);
}

Error CopyPeer(void* dst, int dst_device, const void* src, int src_device, std::size_t count,
               cpu::Stream& stream, std::uint64_t* position) {
  Context& context = Context::Get();
  if (!context.ValidDevice(dst_device) || !context.ValidDevice(src_device)) {
    return kErrorInvalidDevice;
  }
  if (count == 0) return kSuccess;
  if (dst == nullptr || src == nullptr) return kErrorInvalidValue;
  Side to(dst, count);
  Side from(src, count);
  if (!to.on(dst_device) || !from.on(src_device) || !to.in_bounds || !from.in_bounds) {
    return kErrorInvalidValue;
  }
  return cpu::Submit(stream, Op::Copy(dst, src, count), position);
}

// Makes later work of `stream` wait for all work so far in the default stream of `device`.
Error JoinLegacy(cpu::Stream& stream, int device) {
  cpu::Stream& legacy = Context::Get().device(device).legacy_stream();
  if (&legacy == &stream) return kSuccess;
  std::uint64_t position = 0;
  Error error = cpu::Submit(legacy, Op::Nop(), &position);
  return error == kSuccess ? cpu::Submit(stream, Op::Wait(&legacy, position)) : error;
}

// Makes later work in the default stream of `device` wait for a point of `stream`.
Error HoldLegacy(cpu::Stream& stream, std::uint64_t position, int device) {
  cpu::Stream& legacy = Context::Get().device(device).legacy_stream();
  return &legacy == &stream ? kSuccess : cpu::Submit(legacy, Op::Wait(&stream, position));
}

}  // namespace

Error Cpu::Memcpy(void* dst, const void* src, std::size_t count, MemcpyKind kind) {
  return Call([&] {
    Error error = CheckArguments(dst, src, count, kind);
    if (error != kSuccess || count == 0) return error;
    Side to(dst, count);
    Side from(src, count);
    error = Validate(to, from, kind);
    if (error != kSuccess) return error;
    cpu::Stream& stream = Context::Get().CurrentDevice().legacy_stream();
    Op op = Op::Copy(dst, src, count);
    return to.on_device() && from.on_device() ? cpu::Submit(stream, op) : SubmitAndWait(stream, op);
  });
}

Error Cpu::MemcpyAsync(void* dst, const void* src, std::size_t count, MemcpyKind kind,
                       Stream stream) {
  return Call([&] {
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    Error error = CheckArguments(dst, src, count, kind);
    if (error != kSuccess || count == 0) return error;
    return CopyAsync(dst, src, count, kind, *target);
  });
}

Error Cpu::Memset(void* ptr, int value, std::size_t count) {
  return Call([&] {
    return Fill(ptr, value, count, Context::Get().CurrentDevice().legacy_stream(), true);
  });
}

Error Cpu::MemsetAsync(void* ptr, int value, std::size_t count, Stream stream) {
  return Call([&] {
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    return Fill(ptr, value, count, *target, false);
  });
}

Error Cpu::MemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                      std::size_t count) {
  return Call([&] {
    Context& context = Context::Get();
    cpu::Stream& stream = context.CurrentDevice().legacy_stream();
    std::uint64_t position = 0;
    for (int device : {dst_device, src_device}) {
      if (!context.ValidDevice(device)) return kErrorInvalidDevice;
      Error error = JoinLegacy(stream, device);
      if (error != kSuccess) return error;
    }
    Error error = CopyPeer(dst, dst_device, src, src_device, count, stream, &position);
    if (error != kSuccess || position == 0) return error;
    error = HoldLegacy(stream, position, dst_device);
    return error == kSuccess ? HoldLegacy(stream, position, src_device) : error;
  });
}

Error Cpu::MemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                           std::size_t count, Stream stream) {
  return Call([&] {
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    std::uint64_t position = 0;
    return CopyPeer(dst, dst_device, src, src_device, count, *target, &position);
  });
}

}  // namespace infini::rt::runtime
