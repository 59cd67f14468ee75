#include "runtime/sim_runtime.h"

#include <cstdio>

#include "backends/simt/emulator/fault.h"
#include "backends/simt/emulator/options.h"
#include "runtime/protection.h"

namespace infini_train::sim {
namespace {

using simt::emulator::GetOptions;
using Base = rt::Runtime<::infini::rt::Device::Type::kCpu>;

rt::Error BeginWork(const void*) {
  protection::BeginWork();
  return rt::kSuccess;
}

rt::Error EndWork(const void*) {
  protection::EndWork();
  return rt::kSuccess;
}

/// Does `submit`; where memory is checked, between its opening and its closing, and waits for it.
template <typename Submit>
rt::Error WithOpenMemory(rt::Stream stream, Submit&& submit) {
  if (!GetOptions().check_memory) return submit();
  rt::Error error = Base::LaunchKernel(&BeginWork, nullptr, 0, stream);
  if (error != rt::kSuccess) return error;
  error = submit();
  const rt::Error closing = Base::LaunchKernel(&EndWork, nullptr, 0, stream);
  if (error != rt::kSuccess || closing != rt::kSuccess)
    return error != rt::kSuccess ? error : closing;
  rt::StreamCaptureStatus status = rt::kStreamCaptureStatusNone;
  error = Base::StreamIsCapturing(stream, &status);
  if (error != rt::kSuccess || status != rt::kStreamCaptureStatusNone) return error;
  return Base::StreamSynchronize(stream);
}

}  // namespace

rt::Error SimRuntime::GetDeviceProperties(rt::DeviceProp* prop, int device) {
  const rt::Error error = Base::GetDeviceProperties(prop, device);
  if (error != rt::kSuccess) return error;
  std::snprintf(prop->name, sizeof(prop->name), "InfiniTrain SIMT emulator");
  prop->multi_processor_count = GetOptions().threads;
  prop->warp_size = GetOptions().warp_size;
  return rt::kSuccess;
}

rt::Error SimRuntime::Malloc(void** ptr, std::size_t size) {
  if (!GetOptions().check_memory || ptr == nullptr || size == 0) return Base::Malloc(ptr, size);
  int device = 0;
  rt::Error error = GetDevice(&device);
  if (error != rt::kSuccess) return error;
  void* block = nullptr;
  error = Base::Malloc(&block, protection::PaddedSize(size));
  if (error == rt::kSuccess) *ptr = protection::Close(block, size, device);
  return error;
}

rt::Error SimRuntime::Free(void* ptr) {
  void* block = GetOptions().check_memory ? protection::Release(ptr) : nullptr;
  return Base::Free(block != nullptr ? block : ptr);
}

rt::Error SimRuntime::MemMap(void* ptr, std::size_t size) {
  const rt::Error error = Base::MemMap(ptr, size);
  if (!GetOptions().check_memory || error != rt::kSuccess) return error;
  int device = 0;
  std::size_t piece = 0;
  static_cast<void>(GetDevice(&device));
  static_cast<void>(MemGetAllocationGranularity(&piece));
  for (std::size_t offset = 0; offset < size; offset += piece)
    protection::Close(static_cast<std::byte*>(ptr) + offset, piece, device);
  return error;
}

rt::Error SimRuntime::MemUnmap(void* ptr, std::size_t size) {
  std::size_t piece = 0;
  static_cast<void>(MemGetAllocationGranularity(&piece));
  for (std::size_t offset = 0; GetOptions().check_memory && offset < size; offset += piece)
    protection::Release(static_cast<std::byte*>(ptr) + offset);
  return Base::MemUnmap(ptr, size);
}

rt::Error SimRuntime::MemcpyAsync(void* dst, const void* src, std::size_t count,
                                  rt::MemcpyKind kind, rt::Stream stream) {
  return WithOpenMemory(stream, [&] { return Base::MemcpyAsync(dst, src, count, kind, stream); });
}

rt::Error SimRuntime::MemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                      std::size_t count, rt::Stream stream) {
  return WithOpenMemory(stream, [&] {
    return Base::MemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
  });
}

rt::Error SimRuntime::MemsetAsync(void* ptr, int value, std::size_t count, rt::Stream stream) {
  return WithOpenMemory(stream, [&] { return Base::MemsetAsync(ptr, value, count, stream); });
}

std::string SimRuntime::ErrorDetail(rt::Error error) {
  return error == rt::kErrorLaunchFailure ? simt::emulator::FaultMessage() : std::string();
}

}  // namespace infini_train::sim
