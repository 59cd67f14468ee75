#pragma once

#include <cstddef>
#include <string>

#include <infini/rt/device.h>
#include <infini/rt/metax/runtime.h>
#include <infini/rt/types.h>

namespace infini_train::maca {

namespace rt = ::infini::rt::runtime;

/// InfiniRT's MetaX runtime under the process's policy (policy.h).
struct MacaRuntime : rt::Runtime<::infini::rt::Device::Type::kMetax> {
  /// With the workarounds synchronous, else from the pool for stream-ordered memory; ready for any
  /// stream when it returns. Zero bytes are null.
  static rt::Error Malloc(void** ptr, std::size_t size);
  static rt::Error Free(void* ptr);
  static rt::Error MemcpyAsync(void* dst, const void* src, std::size_t count, rt::MemcpyKind kind,
                               rt::Stream stream);
  static rt::Error MemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                   std::size_t count, rt::Stream stream);
  /// What the SDK says about errors that InfiniRT has no name for.
  static std::string ErrorDetail(rt::Error error);
};

}  // namespace infini_train::maca
