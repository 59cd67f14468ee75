#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/generator.h"
#include "infini_train/core/scalar.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/op_list.h"
#include "infini_train/ops/params.h"

namespace infini_train {

/// What a kernel needs besides its arguments: the device and the stream to work on.
struct KernelContext {
  Device device;
  StreamHandle stream = nullptr;
};

enum class OpId : std::uint16_t {
#define INFINI_TRAIN_OP_ID(Name, ...) k##Name,
  INFINI_TRAIN_OP_LIST(INFINI_TRAIN_OP_ID)
#undef INFINI_TRAIN_OP_ID
      kCount
};

inline constexpr int kNumOps = static_cast<int>(OpId::kCount);

/// One tag type per op of op_list.h: `op::Add::Fn` is the kernel's function type.
namespace op {
#define INFINI_TRAIN_OP_TAG(Name, doc, ...)                             \
  struct Name {                                                         \
    using Fn = void(const ::infini_train::KernelContext&, __VA_ARGS__); \
    static constexpr OpId kId = OpId::k##Name;                          \
  };
INFINI_TRAIN_OP_LIST(INFINI_TRAIN_OP_TAG)
#undef INFINI_TRAIN_OP_TAG
}  // namespace op

/// Declared facts of an op, for reports and docs.
struct OpInfo {
  std::string_view name;
  std::string_view sentence;
  std::string_view parameters;
};
INFINI_TRAIN_API const OpInfo& GetOpInfo(OpId id);

/// Whether a kind of device has its own kernel for the op.
INFINI_TRAIN_API bool HasKernel(DeviceType type, OpId id);

namespace detail {

using AnyKernel = void (*)();

/// What a call runs: the kernel, or what surrounds it (ops/profiler.h). Null when the device has no
/// kernel.
INFINI_TRAIN_API AnyKernel FindKernel(DeviceType type, OpId id) noexcept;

/// What stands in for a kernel that the device lacks: runs the CPU's on copies (ops/fallback.h).
/// Throws Error where the op has no kernel on the CPU, or two on the device.
INFINI_TRAIN_API AnyKernel FindFallback(DeviceType type, OpId id);

/// Throws Error: why there is no kernel to call, and who has one.
[[noreturn]] INFINI_TRAIN_API void ThrowNoKernel(DeviceType type, OpId id);
[[noreturn]] INFINI_TRAIN_API void ThrowDeviceMismatch(OpId id, Device expected, Device found);

/// Whether a second kernel was registered, so that neither is used.
bool HasTwoKernels(DeviceType type, OpId id) noexcept;

/// Remembers a kernel. A second one for the same op and device disables both: using the op throws
/// an Error that names both places.
INFINI_TRAIN_API void RegisterKernel(DeviceType type, OpId id, AnyKernel kernel, const char* file,
                                     int line) noexcept;

/// Finds the device of a call from its tensor arguments and checks that they agree.
class ArgumentScan {
 public:
  explicit ArgumentScan(OpId id) : id_(id) {}

  void Visit(const Tensor& tensor) {
    if (!tensor.defined()) return;
    const Device device = tensor.device();
    if (!found_) {
      device_ = device;
      found_ = true;
    } else if (!(device == device_)) {
      ThrowDeviceMismatch(id_, device_, device);
    }
  }
  void Visit(TensorList tensors) {
    for (const Tensor& tensor : tensors)
      Visit(tensor);
  }
  void Visit(MutableTensorList tensors) { Visit(TensorList(tensors)); }
  template <typename T>
  void Visit(const T&) {}

  bool found() const { return found_; }
  Device device() const { return device_; }

 private:
  OpId id_;
  Device device_;
  bool found_ = false;
};

/// Written arguments are told by their type: Tensor& and MutableTensorList.
template <typename Parameter>
inline constexpr bool kIsWritten =
    std::is_same_v<Parameter, Tensor&> || std::is_same_v<Parameter, MutableTensorList>;

template <typename Parameter>
void BumpIfWritten(const auto& argument) {
  if constexpr (std::is_same_v<Parameter, Tensor&>) {
    if (argument.defined()) argument.BumpVersion();
  } else if constexpr (std::is_same_v<Parameter, MutableTensorList>) {
    for (const Tensor& tensor : argument) {
      if (tensor.defined()) tensor.BumpVersion();
    }
  }
}

template <typename Op, typename Fn>
struct Caller;

template <typename Op, typename... Parameters>
struct Caller<Op, void(const KernelContext&, Parameters...)> {
  static void Call(Parameters... arguments) {
    ArgumentScan scan(Op::kId);
    (scan.Visit(arguments), ...);
    if (!scan.found()) return;  // Empty lists: nothing to do.
    const Device device = scan.device();
    AnyKernel kernel = FindKernel(device.type(), Op::kId);
    if (kernel == nullptr) kernel = FindFallback(device.type(), Op::kId);
    const KernelContext context{device, CurrentStream(device)};
    reinterpret_cast<typename Op::Fn*>(kernel)(context, arguments...);
    (BumpIfWritten<Parameters>(arguments), ...);
  }
};

/// Registers `kernel`, checked against the op's declaration. A kernel may take a context type of
/// its provider's in place of KernelContext, if that is constructible from one.
template <typename Op, auto kernel>
struct KernelRegistrar {
  static_assert(!std::is_same_v<Op, Op>,
                "expected the address of a function void(const KernelContext&, the op's "
                "parameters)");
  KernelRegistrar(DeviceType, const char*, int) {}
};

template <typename Op, typename Context, typename... Parameters,
          void (*kernel)(const Context&, Parameters...)>
struct KernelRegistrar<Op, kernel> {
  static_assert(std::is_same_v<void(const KernelContext&, Parameters...), typename Op::Fn>,
                "the kernel's parameters differ from the op's declaration in ops/op_list.h");
  static_assert(std::is_constructible_v<Context, const KernelContext&>,
                "the kernel's context must be constructible from KernelContext");

  static void Run(const KernelContext& context, Parameters... arguments) {
    kernel(Context(context), arguments...);
  }

  KernelRegistrar(DeviceType type, const char* file, int line) {
    typename Op::Fn* function = nullptr;
    if constexpr (std::is_same_v<Context, KernelContext>) {
      function = kernel;
    } else {
      function = &Run;
    }
    RegisterKernel(type, Op::kId, reinterpret_cast<AnyKernel>(function), file, line);
  }
};

}  // namespace detail

/// Runs an op on the device of its tensor arguments and marks the written ones as modified:
/// `Call<op::Add>(out, a, b)`. Does not look at shapes; the caller has checked them. A device that
/// has no kernel falls back to the CPU's (ops/fallback.h). Throws Error when the tensors are on
/// different devices.
template <typename Op, typename... Arguments>
void Call(Arguments&&... arguments) {
  static_assert(
      std::is_invocable_v<decltype(&detail::Caller<Op, typename Op::Fn>::Call), Arguments...>,
      "the arguments differ from the op's declaration in ops/op_list.h");
  detail::Caller<Op, typename Op::Fn>::Call(std::forward<Arguments>(arguments)...);
}

/// REGISTER_KERNEL(kPrivateUse1, LayerNorm, &LayerNormKernel) at file scope. A wrong signature or
/// an unknown op does not compile.
#define REGISTER_KERNEL(device_kind, Op, function)                                                \
  static const ::infini_train::detail::KernelRegistrar<::infini_train::op::Op, function>          \
      infini_train_kernel_##device_kind##_##Op(::infini_train::DeviceType::device_kind, __FILE__, \
                                               __LINE__)

}  // namespace infini_train
