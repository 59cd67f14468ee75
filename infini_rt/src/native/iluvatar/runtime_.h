#pragma once

#include <cstddef>
#include <string_view>

#include <cuda_runtime.h>

#include <infini/rt/device.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

#define INFINI_RT_NATIVE(name) cuda##name

namespace infini::rt::runtime {

/// Iluvatar CoreX: the SDK has CUDA's own names and numbers; graph instantiation takes CUDA 11's
/// five arguments, and there are no pool attributes.
template <>
struct Runtime<Device::Type::kIluvatar> {
#include "native/cuda_style/async_memory.inc"
#include "native/cuda_style/common.inc"
#include "native/cuda_style/extras.inc"
#include "native/cuda_style/own_errors.inc"

  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    if (!detail::CanInstantiate(graph_exec, graph, flags)) return Refuse(kErrorInvalidValue);
    return Run([&] {
      return cudaGraphInstantiate(Native(graph_exec), Native(graph), nullptr, nullptr, 0);
    });
  }

 private:
  static constexpr Device::Type kType = Device::Type::kIluvatar;
  static constexpr bool kCudaNumbers = false;
  static constexpr bool kExternalWaits = true;
  static constexpr bool kReservedStreams = true;

  // The SDK keeps the last error of its own failures.
  template <typename Call>
  static Error Run(Call call) {
    return static_cast<Error>(call());
  }

#include "native/cuda_style/conversions.inc"
};

}  // namespace infini::rt::runtime

#undef INFINI_RT_NATIVE
