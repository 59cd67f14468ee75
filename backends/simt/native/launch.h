#pragma once

/// Parts of Launch() in device languages that have CUDA's dim3.

#include <string>
#include <type_traits>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt::detail {

/// What a launch asks of a kernel with parameters P, and of as many arguments.
template <std::size_t kArguments, typename... P>
constexpr void CheckParameters() {
  static_assert(sizeof...(P) == kArguments, "the kernel takes another number of arguments");
  static_assert((std::is_trivially_copyable_v<P> && ...),
                "arguments of kernels are trivially copyable");
  static_assert((sizeof(P) + ... + 0) <= kMaxArgumentBytes,
                "the arguments of a kernel take at most 4096 bytes");
}

inline bool IsEmpty(const Geometry& geometry) {
  return geometry.grid_x == 0 || geometry.grid_y == 0 || geometry.grid_z == 0;
}

inline dim3 GridOf(const Geometry& geometry) {
  return dim3(static_cast<unsigned>(geometry.grid_x), static_cast<unsigned>(geometry.grid_y),
              static_cast<unsigned>(geometry.grid_z));
}

[[noreturn]] inline void ThrowLaunchError(OpId op, const char* what) {
  const std::string name = op == OpId::kCount ? "a kernel" : std::string(GetOpInfo(op).name);
  throw Error("launch of " + name + ": " + what);
}

}  // namespace infini_train::simt::detail
