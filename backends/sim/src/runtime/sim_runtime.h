#pragma once

#include <cstddef>
#include <string>

#include <infini/rt/cpu/runtime.h>
#include <infini/rt/device.h>
#include <infini/rt/types.h>

namespace infini_train::sim {

namespace rt = ::infini::rt::runtime;

/// InfiniRT's CPU runtime as the device on which the emulator runs kernels. Where
/// INFINITRAIN_SIM_CHECK has `memory`, host code cannot touch device memory (protection.h): calls
/// that use it return when their work is done, unless a graph captures them, so that it is closed
/// again by then.
struct SimRuntime : rt::Runtime<::infini::rt::Device::Type::kCpu> {
  static rt::Error GetDeviceProperties(rt::DeviceProp* prop, int device);
  static rt::Error Malloc(void** ptr, std::size_t size);
  static rt::Error Free(void* ptr);
  static rt::Error MemMap(void* ptr, std::size_t size);
  static rt::Error MemUnmap(void* ptr, std::size_t size);
  static rt::Error MemcpyAsync(void* dst, const void* src, std::size_t count, rt::MemcpyKind kind,
                               rt::Stream stream);
  static rt::Error MemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                   std::size_t count, rt::Stream stream);
  static rt::Error MemsetAsync(void* ptr, int value, std::size_t count, rt::Stream stream);
  /// After a device fault: which kernel did what.
  static std::string ErrorDetail(rt::Error error);
};

}  // namespace infini_train::sim
