#pragma once

#include <cstddef>
#include <string_view>

#include <musa_runtime.h>

#include <infini/rt/device.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

#define INFINI_RT_NATIVE(name) musa##name

namespace infini::rt::runtime {

/// Moore Threads: MUSA's names are CUDA's with the prefix musa, its error numbers are CUDA's. The
/// SDK has no stream-ordered memory that can be relied on, and its graph instantiation takes three
/// or five arguments depending on its version.
template <>
struct Runtime<Device::Type::kMoore> {
#include "native/cuda_style/common.inc"
#include "native/cuda_style/extras.inc"
#include "native/cuda_style/own_errors.inc"

  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    if (!detail::CanInstantiate(graph_exec, graph, flags)) return Refuse(kErrorInvalidValue);
    return Run([&] { return Instantiate(Native(graph_exec), Native(graph)); });
  }

 private:
  static constexpr Device::Type kType = Device::Type::kMoore;
  static constexpr bool kCudaNumbers = false;
  static constexpr bool kExternalWaits = true;
  static constexpr bool kReservedStreams = false;

  // The SDK keeps the last error of its own failures.
  template <typename Call>
  static Error Run(Call call) {
    return static_cast<Error>(call());
  }

  template <typename NativeExec, typename NativeGraph>
  static musaError_t Instantiate(NativeExec* exec, NativeGraph graph) {
    if constexpr (requires { musaGraphInstantiate(exec, graph, nullptr, nullptr, 0); }) {
      return musaGraphInstantiate(exec, graph, nullptr, nullptr, 0);
    } else {
      return musaGraphInstantiate(exec, graph, 0);
    }
  }

#include "native/cuda_style/conversions.inc"
};

}  // namespace infini::rt::runtime

#undef INFINI_RT_NATIVE
