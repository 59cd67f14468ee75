#pragma once

#include "infini_train/core/device/device.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {

/// The most bytes that a kernel's arguments take together.
inline constexpr std::size_t kMaxArgumentBytes = 4096;

/// Where a launcher works and for which op. NativeStream is the provider's type of stream.
struct Context {
  Context(Device device, NativeStream stream, OpId op = OpId::kCount)
      : device(device), stream(stream), op(op) {}
  explicit Context(const KernelContext& context, OpId op = OpId::kCount)
      : Context(context.device, static_cast<NativeStream>(context.stream), op) {}

  Device device;
  NativeStream stream;
  OpId op;  ///< for messages; kCount: none
};

namespace detail {

/// `launcher` as the kernel of an op.
template <typename Op, auto launcher>
struct Launcher;

template <typename Op, typename... Parameters, void (*launcher)(const Context&, Parameters...)>
struct Launcher<Op, launcher> {
  static void Run(const KernelContext& context, Parameters... parameters) {
    launcher(Context(context, Op::kId), parameters...);
  }
};

}  // namespace detail

/// SIMT_REGISTER_KERNEL(LayerNorm, &LayerNorm) at file scope, for a launcher
/// `void LayerNorm(const Context&, <the op's parameters>)`.
#define SIMT_REGISTER_KERNEL(Op, function) SIMT_REGISTER_KERNEL_FOR(SIMT_DEVICE_TYPE, Op, function)
#define SIMT_REGISTER_KERNEL_FOR(device_kind, Op, function) \
  REGISTER_KERNEL(                                          \
      device_kind, Op,                                      \
      (&::infini_train::simt::detail::Launcher<::infini_train::op::Op, function>::Run))

}  // namespace infini_train::simt
