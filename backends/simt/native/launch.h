#pragma once

/// Parts of Launch() in device languages that have CUDA's dim3.

#include <string>
#include <type_traits>

#include "backends/simt/context.h"
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

/// Makes a context's device the current one for a scope: the default stream is the current
/// device's. `Runtime`: Get(int*) and Set(int) of the current device, Check(error, op) which
/// throws, and IsInUse(device): one that was current but is not in use stays unused.
template <typename Runtime>
class CurrentDevice {
 public:
  explicit CurrentDevice(const Context& context) : wanted_(context.device.index()) {
    Runtime::Check(Runtime::Get(&previous_), context.op);
    if (previous_ != wanted_) Runtime::Check(Runtime::Set(wanted_), context.op);
  }
  ~CurrentDevice() {
    if (previous_ != wanted_ && Runtime::IsInUse(previous_))
      static_cast<void>(Runtime::Set(previous_));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int wanted_;
  int previous_ = 0;
};

}  // namespace infini_train::simt::detail
