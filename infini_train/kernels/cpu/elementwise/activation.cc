#include <numbers>

#include "infini_train/kernels/cpu/elementwise/loops.h"
#include "infini_train/kernels/cpu/math.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

// Beyond these, the functions are 0 or x and their slopes 0 or 1, in float and in double. Clipping
// first keeps x^3, and 0 * x at infinity, finite.
template <typename T>
inline constexpr T kGeluTanhLimit = T(10);
template <typename T>
inline constexpr T kGeluErfLimit = T(40);
template <typename T>
inline constexpr T kSiluLimit = T(1000);

template <typename T>
T Clip(T x, T limit) {
  return AtMost(AtLeast(x, -limit), limit);
}

template <typename T>
inline constexpr T kSqrtTwoOverPi = T(0.79788456080286535587989211986876L);
template <typename T>
inline constexpr T kGeluCubic = T(0.044715L);

struct GeluTanhOp {
  template <typename T>
  static T Apply(T x) {
    const T clipped = Clip(x, kGeluTanhLimit<T>);
    const T u = kSqrtTwoOverPi<T> * (clipped + kGeluCubic<T> * clipped * clipped * clipped);
    return T(0.5) * AtLeast(x, -kGeluTanhLimit<T>) * (T(1) + Tanh(u));
  }
};
struct GeluErfOp {
  template <typename T>
  static T Apply(T x) {
    const T clipped = AtLeast(x, -kGeluErfLimit<T>);
    return T(0.5) * clipped * (T(1) + Erf(clipped * (std::numbers::sqrt2_v<T> / 2)));
  }
};
struct GeluTanhBackwardOp {
  template <typename T>
  static T Apply(T grad, T x) {
    const T clipped = Clip(x, kGeluTanhLimit<T>);
    const T square = clipped * clipped;
    const T t = Tanh(kSqrtTwoOverPi<T> * (clipped + kGeluCubic<T> * square * clipped));
    const T slope = kSqrtTwoOverPi<T> * (T(1) + T(3) * kGeluCubic<T> * square);
    return grad * (T(0.5) * (T(1) + t) + T(0.5) * clipped * (T(1) - t * t) * slope);
  }
};
struct GeluErfBackwardOp {
  template <typename T>
  static T Apply(T grad, T x) {
    const T clipped = Clip(x, kGeluErfLimit<T>);
    const T distribution = T(0.5) * (T(1) + Erf(clipped * (std::numbers::sqrt2_v<T> / 2)));
    const T density = kSqrtTwoOverPi<T> * T(0.5) * Exp(T(-0.5) * clipped * clipped);
    return grad * (distribution + clipped * density);
  }
};

template <typename T>
T SiluOf(T x) {
  return AtLeast(x, -kSiluLimit<T>) * Sigmoid(x);
}
template <typename T>
T SiluSlope(T x, T sigmoid) {
  return sigmoid * (T(1) + Clip(x, kSiluLimit<T>) * (T(1) - sigmoid));
}

struct SiluOp {
  template <typename T>
  static T Apply(T x) {
    return SiluOf(x);
  }
};
struct SiluBackwardOp {
  template <typename T>
  static T Apply(T grad, T x) {
    return grad * SiluSlope(x, Sigmoid(x));
  }
};
struct SwiGluOp {
  template <typename T>
  static T Apply(T gate, T up) {
    return SiluOf(gate) * up;
  }
};

/// grad_gate, grad_up and, where with_out, the result of SwiGlu from grad, gate, up.
template <typename T, bool with_out>
void SwiGluBackwardLoop(std::byte* const* operands, std::int64_t n) {
  constexpr int kInputs = with_out ? 3 : 2;
  auto* grad_gate = reinterpret_cast<T*>(operands[0]);
  auto* grad_up = reinterpret_cast<T*>(operands[1]);
  [[maybe_unused]] auto* out = reinterpret_cast<T*>(operands[2]);
  const auto* grad = reinterpret_cast<const T*>(operands[kInputs]);
  const auto* gate = reinterpret_cast<const T*>(operands[kInputs + 1]);
  const auto* up = reinterpret_cast<const T*>(operands[kInputs + 2]);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = grad[i];
    const T x = gate[i];
    const T u = up[i];
    const T sigmoid = Sigmoid(x);
    const T silu = AtLeast(x, -kSiluLimit<T>) * sigmoid;
    grad_up[i] = g * silu;
    grad_gate[i] = g * u * SiluSlope(x, sigmoid);
    if constexpr (with_out) out[i] = silu * u;
  }
}

void Silu(const KernelContext&, Tensor& out, const Tensor& x) {
  static constexpr LoopTable kLoops = UnaryLoops<SiluOp, float, double>();
  RunElementwise("Silu", kLoops, out, {x}, kFunctionGrain);
}

void SiluBackward(const KernelContext&, Tensor& grad_x, const Tensor& grad_y, const Tensor& x) {
  static constexpr LoopTable kLoops = BinaryLoops<SiluBackwardOp, float, double>();
  RunElementwise("SiluBackward", kLoops, grad_x, {grad_y, x}, kFunctionGrain);
}

void Gelu(const KernelContext&, Tensor& out, const Tensor& x, bool tanh_approximation) {
  static constexpr LoopTable kTanhLoops = UnaryLoops<GeluTanhOp, float, double>();
  static constexpr LoopTable kErfLoops = UnaryLoops<GeluErfOp, float, double>();
  RunElementwise("Gelu", tanh_approximation ? kTanhLoops : kErfLoops, out, {x}, kFunctionGrain);
}

void GeluBackward(const KernelContext&, Tensor& grad_x, const Tensor& grad_y, const Tensor& x,
                  bool tanh_approximation) {
  static constexpr LoopTable kTanhLoops = BinaryLoops<GeluTanhBackwardOp, float, double>();
  static constexpr LoopTable kErfLoops = BinaryLoops<GeluErfBackwardOp, float, double>();
  RunElementwise("GeluBackward", tanh_approximation ? kTanhLoops : kErfLoops, grad_x, {grad_y, x},
                 kFunctionGrain);
}

/// The two halves of packed rows [rows, 2F] as operands of shape [rows, F].
struct PackedHalves {
  PackedHalves(std::string_view op, const Tensor& packed, const Dims& shape, DataType compute_dtype)
      : strides(ContiguousStrides(packed.shape())) {
    gate = ComputeOperand(op, packed, compute_dtype);
    gate.strides = &strides;
    gate.contiguous = false;
    up = gate;
    up.data += shape.back() * static_cast<std::int64_t>(SizeOf(packed.dtype()));
  }
  PackedHalves(const PackedHalves&) = delete;
  PackedHalves& operator=(const PackedHalves&) = delete;

  Dims strides;
  Operand gate;
  Operand up;
};

void SwiGlu(const KernelContext&, Tensor& out, const Tensor& x) {
  static constexpr LoopTable kLoops = BinaryLoops<SwiGluOp, float, double>();
  const ElementwiseLoop loop = kLoops.Find("SwiGlu", out.dtype());
  const DataType compute_dtype = ComputeDataType(out.dtype());
  const PackedHalves halves("SwiGlu", x, out.shape(), compute_dtype);
  const Operand operands[] = {ComputeOperand("SwiGlu", out, compute_dtype), halves.gate, halves.up};
  RunElementwise(out.shape(), operands, 1, loop, kFunctionGrain);
}

template <bool with_out>
constexpr LoopTable SwiGluBackwardLoops() {
  LoopTable loops;
  loops.Set<float>(&SwiGluBackwardLoop<float, with_out>);
  loops.Set<double>(&SwiGluBackwardLoop<double, with_out>);
  return loops;
}

void SwiGluBackward(const KernelContext&, Tensor& grad_x, Tensor& out, const Tensor& grad_y,
                    const Tensor& x) {
  static constexpr LoopTable kLoops = SwiGluBackwardLoops<false>();
  static constexpr LoopTable kLoopsWithOut = SwiGluBackwardLoops<true>();
  const ElementwiseLoop loop =
      (out.defined() ? kLoopsWithOut : kLoops).Find("SwiGluBackward", grad_x.dtype());
  const DataType compute_dtype = ComputeDataType(grad_x.dtype());
  const PackedHalves grads("SwiGluBackward", grad_x, grad_y.shape(), compute_dtype);
  const PackedHalves halves("SwiGluBackward", x, grad_y.shape(), compute_dtype);
  const auto operand = [&](const Tensor& tensor) {
    return ComputeOperand("SwiGluBackward", tensor, compute_dtype);
  };
  if (out.defined()) {
    const Operand operands[] = {grads.gate,      grads.up,    operand(out),
                                operand(grad_y), halves.gate, halves.up};
    RunElementwise(grad_y.shape(), operands, 3, loop, kFunctionGrain);
  } else {
    const Operand operands[] = {grads.gate, grads.up, operand(grad_y), halves.gate, halves.up};
    RunElementwise(grad_y.shape(), operands, 2, loop, kFunctionGrain);
  }
}

}  // namespace

REGISTER_KERNEL(kCPU, Silu, &Silu);
REGISTER_KERNEL(kCPU, SiluBackward, &SiluBackward);
REGISTER_KERNEL(kCPU, Gelu, &Gelu);
REGISTER_KERNEL(kCPU, GeluBackward, &GeluBackward);
REGISTER_KERNEL(kCPU, SwiGlu, &SwiGlu);
REGISTER_KERNEL(kCPU, SwiGluBackward, &SwiGluBackward);

}  // namespace infini_train::cpu
