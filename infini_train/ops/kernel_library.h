#pragma once

#include <string>

#include "infini_train/core/api.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {

/// Name and version of the vendor's library that a device's kernel for the op calls, for reports;
/// empty where the kernel is the provider's own.
INFINI_TRAIN_API std::string KernelLibrary(DeviceType type, OpId id);

namespace detail {

/// At file scope, beside REGISTER_KERNEL: `name` is called when a report asks.
struct INFINI_TRAIN_API KernelLibraryRegistrar {
  KernelLibraryRegistrar(DeviceType type, OpId id, std::string (*name)()) noexcept;
};

}  // namespace detail

/// REGISTER_KERNEL_LIBRARY(kPrivateUse1, Gemm, &LibraryVersion) at file scope, for a function
/// `std::string LibraryVersion()`.
#define REGISTER_KERNEL_LIBRARY(device_kind, Op, function)                                      \
  static const ::infini_train::detail::KernelLibraryRegistrar                                   \
      infini_train_kernel_library_##device_kind##_##Op(::infini_train::DeviceType::device_kind, \
                                                       ::infini_train::op::Op::kId, function)

}  // namespace infini_train
