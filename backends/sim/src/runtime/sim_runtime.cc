#include "runtime/sim_runtime.h"

#include <cstdio>

#include "backends/simt/emulator/fault.h"
#include "backends/simt/emulator/options.h"
#include "runtime/protection.h"

namespace infini_train::sim {
namespace {

using simt::emulator::GetOptions;

rt::Error BeginWork(const void*) {
  protection::BeginWork();
  return rt::kSuccess;
}

rt::Error EndWork(const void*) {
  protection::EndWork();
  return rt::kSuccess;
}

/// Puts what `submit` does between the opening and the closing of device memory, and waits for it.
template <typename Submit>
rt::Error WithOpenMemory(rt::Stream stream, Submit&& submit) {
  rt::Error error = SimRuntime::LaunchKernel(&BeginWork, nullptr, 0, stream);
  if (error != rt::kSuccess) return error;
  error = submit();
  const rt::Error closing = SimRuntime::LaunchKernel(&EndWork, nullptr, 0, stream);
  if (error != rt::kSuccess || closing != rt::kSuccess)
    return error != rt::kSuccess ? error : closing;
  rt::StreamCaptureStatus status = rt::kStreamCaptureStatusNone;
  error = SimRuntime::StreamIsCapturing(stream, &status);
  if (error != rt::kSuccess || status != rt::kStreamCaptureStatusNone) return error;
  return SimRuntime::StreamSynchronize(stream);
}

}  // namespace

rt::Error SimRuntime::GetDeviceProperties(rt::DeviceProp* prop, int device) {
  const rt::Error error = Runtime::GetDeviceProperties(prop, device);
  if (error != rt::kSuccess) return error;
  std::snprintf(prop->name, sizeof(prop->name), "InfiniTrain SIMT emulator");
  prop->multi_processor_count = GetOptions().threads;
  prop->warp_size = GetOptions().warp_size;
  return rt::kSuccess;
}

std::string SimRuntime::ErrorDetail(rt::Error error) {
  return error == rt::kErrorLaunchFailure ? simt::emulator::FaultMessage() : std::string();
}

rt::Error CheckedRuntime::Malloc(void** ptr, std::size_t size) {
  if (ptr == nullptr || size == 0) return SimRuntime::Malloc(ptr, size);
  int device = 0;
  rt::Error error = GetDevice(&device);
  if (error != rt::kSuccess) return error;
  void* block = nullptr;
  error = SimRuntime::Malloc(&block, protection::PaddedSize(size));
  if (error == rt::kSuccess) *ptr = protection::Close(block, size, device);
  return error;
}

rt::Error CheckedRuntime::Free(void* ptr) {
  void* block = protection::Release(ptr);
  return SimRuntime::Free(block != nullptr ? block : ptr);
}

rt::Error CheckedRuntime::MemcpyAsync(void* dst, const void* src, std::size_t count,
                                      rt::MemcpyKind kind, rt::Stream stream) {
  return WithOpenMemory(stream,
                        [&] { return SimRuntime::MemcpyAsync(dst, src, count, kind, stream); });
}

rt::Error CheckedRuntime::MemcpyPeerAsync(void* dst, int dst_device, const void* src,
                                          int src_device, std::size_t count, rt::Stream stream) {
  return WithOpenMemory(stream, [&] {
    return SimRuntime::MemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
  });
}

rt::Error CheckedRuntime::MemsetAsync(void* ptr, int value, std::size_t count, rt::Stream stream) {
  return WithOpenMemory(stream, [&] { return SimRuntime::MemsetAsync(ptr, value, count, stream); });
}

}  // namespace infini_train::sim
