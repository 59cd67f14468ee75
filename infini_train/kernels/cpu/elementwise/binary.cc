#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <type_traits>

#include "infini_train/core/error.h"
#include "infini_train/kernels/cpu/elementwise/loops.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// The unsigned type in which integer arithmetic on T wraps; not narrower than unsigned, since
/// narrower operands would be promoted to int.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

// One struct for each arithmetic operation, on floating operands and on wrapping integers.
#define INFINI_TRAIN_ARITHMETIC(Name, expression)         \
  struct Name##Op {                                       \
    template <typename T>                                 \
    static T Apply(T a_value, T b_value) {                \
      if constexpr (std::is_integral_v<T>) {              \
        const auto a = static_cast<Wrapping<T>>(a_value); \
        const auto b = static_cast<Wrapping<T>>(b_value); \
        return static_cast<T>(expression);                \
      } else {                                            \
        const T a = a_value;                              \
        const T b = b_value;                              \
        return expression;                                \
      }                                                   \
    }                                                     \
  };
INFINI_TRAIN_ARITHMETIC(Add, a + b)
INFINI_TRAIN_ARITHMETIC(Sub, a - b)
INFINI_TRAIN_ARITHMETIC(ReverseSub, b - a)
INFINI_TRAIN_ARITHMETIC(Mul, a* b)
#undef INFINI_TRAIN_ARITHMETIC

struct AddScaledOp {
  template <typename T>
  static T Apply(T out, T x, T factor) {
    return AddOp::Apply(out, MulOp::Apply(x, factor));
  }
};

// One struct for each function of two arguments.
#define INFINI_TRAIN_FUNCTION(Name, expression) \
  struct Name##Op {                             \
    template <typename T>                       \
    static auto Apply(T a, T b) {               \
      return expression;                        \
    }                                           \
  };
INFINI_TRAIN_FUNCTION(Div, a / b)
INFINI_TRAIN_FUNCTION(ReverseDiv, b / a)
INFINI_TRAIN_FUNCTION(Pow, std::pow(a, b))
// The sum is NaN where a or b is.
INFINI_TRAIN_FUNCTION(Maximum, a != a || b != b ? T(a + b) : a < b ? b : a)
INFINI_TRAIN_FUNCTION(Minimum, a != a || b != b ? T(a + b) : b < a ? b : a)
INFINI_TRAIN_FUNCTION(Eq, a == b)
INFINI_TRAIN_FUNCTION(Ne, a != b)
INFINI_TRAIN_FUNCTION(Lt, a < b)
INFINI_TRAIN_FUNCTION(Le, a <= b)
INFINI_TRAIN_FUNCTION(LogicalAnd, (a != 0) & (b != 0))
INFINI_TRAIN_FUNCTION(LogicalOr, (a | b) != 0)
#undef INFINI_TRAIN_FUNCTION

struct ClampOp {
  template <typename T>
  static T Apply(T x, T low, T high) {
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};

// Powers that are cheaper and more exact than std::pow, with its special values.
struct PowTwoOp {
  template <typename T>
  static T Apply(T x) {
    return x * x;
  }
};
struct PowThreeOp {
  template <typename T>
  static T Apply(T x) {
    return x * x * x;
  }
};
struct PowMinusOneOp {
  template <typename T>
  static T Apply(T x) {
    return T(1) / x;
  }
};
struct PowHalfOp {
  template <typename T>
  static T Apply(T x) {
    // (-0)^0.5 is 0 and (-inf)^0.5 is inf, unlike their square roots.
    const T root = std::sqrt(x + T(0));
    return std::isinf(x) ? std::fabs(x) : root;
  }
};

// Where and MaskedFill move elements of any type by their size.
template <typename T>
void SelectLoop(std::byte* const* operands, std::int64_t n) {
  auto* out = reinterpret_cast<T*>(operands[0]);
  const auto* condition = reinterpret_cast<const std::uint8_t*>(operands[1]);
  const auto* a = reinterpret_cast<const T*>(operands[2]);
  const auto* b = reinterpret_cast<const T*>(operands[3]);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T chosen_if = a[i];
    const T chosen_else = b[i];
    out[i] = condition[i] != 0 ? chosen_if : chosen_else;
  }
}

template <typename Op>
constexpr LoopTable ArithmeticLoops() {
  return BinaryLoops<Op, float, double, std::int64_t, std::int32_t, std::uint8_t, std::uint16_t>();
}
template <typename Op>
constexpr LoopTable TernaryArithmeticLoops() {
  return TernaryLoops<Op, float, double, std::int64_t, std::int32_t, std::uint8_t, std::uint16_t>();
}
template <typename Op>
constexpr LoopTable ComparisonLoops() {
  return PredicateLoops<Op, float, double, std::int64_t, std::int32_t, std::uint8_t, std::uint16_t,
                        bool>();
}

constexpr LoopTable kAdd = ArithmeticLoops<AddOp>();
constexpr LoopTable kSub = ArithmeticLoops<SubOp>();
constexpr LoopTable kReverseSub = ArithmeticLoops<ReverseSubOp>();
constexpr LoopTable kMul = ArithmeticLoops<MulOp>();
constexpr LoopTable kMaximum = ArithmeticLoops<MaximumOp>();
constexpr LoopTable kMinimum = ArithmeticLoops<MinimumOp>();
constexpr LoopTable kDiv = BinaryLoops<DivOp, float, double>();
constexpr LoopTable kReverseDiv = BinaryLoops<ReverseDivOp, float, double>();
constexpr LoopTable kPow = BinaryLoops<PowOp, float, double>();
constexpr LoopTable kPowTwo = UnaryLoops<PowTwoOp, float, double>();
constexpr LoopTable kPowThree = UnaryLoops<PowThreeOp, float, double>();
constexpr LoopTable kPowMinusOne = UnaryLoops<PowMinusOneOp, float, double>();
constexpr LoopTable kPowHalf = UnaryLoops<PowHalfOp, float, double>();
constexpr LoopTable kAddScaled = TernaryArithmeticLoops<AddScaledOp>();
constexpr LoopTable kClamp = TernaryArithmeticLoops<ClampOp>();
constexpr LoopTable kEq = ComparisonLoops<EqOp>();
constexpr LoopTable kNe = ComparisonLoops<NeOp>();
constexpr LoopTable kLt = ComparisonLoops<LtOp>();
constexpr LoopTable kLe = ComparisonLoops<LeOp>();
constexpr LoopTable kLogicalAnd = BinaryLoops<LogicalAndOp, bool>();
constexpr LoopTable kLogicalOr = BinaryLoops<LogicalOrOp, bool>();

void PowScalar(const KernelContext&, Tensor& out, const Tensor& x, Scalar value) {
  const auto exponent = value.To<double>();
  if (exponent == 2) return RunElementwise("PowScalar", kPowTwo, out, {x});
  if (exponent == 3) return RunElementwise("PowScalar", kPowThree, out, {x});
  if (exponent == -1) return RunElementwise("PowScalar", kPowMinusOne, out, {x});
  if (exponent == 0.5) return RunElementwise("PowScalar", kPowHalf, out, {x});
  RunElementwise("PowScalar", kPow, out, {x, value}, kFunctionGrain);
}

void Clamp(const KernelContext&, Tensor& out, const Tensor& x, Scalar low, Scalar high) {
  RunElementwise("Clamp", kClamp, out, {x, low, high});
}

void AddScaled(const KernelContext&, Tensor& out, const Tensor& x, Scalar factor) {
  RunElementwise("AddScaled", kAddScaled, out, {out, x, factor});
}

/// out = condition ? a : b, by bytes.
void Select(std::string_view op, const Tensor& out, const Tensor& condition, const Operand& a,
            const Operand& b) {
  const Operand operands[] = {MakeOperand(out), ComputeOperand(op, condition, DataType::kUInt8), a,
                              b};
  if (a.dtype != out.dtype() || b.dtype != out.dtype()) {
    throw Error(fmt::format("{} expected values of {}, got {} and {}", op, ToString(out.dtype()),
                            ToString(a.dtype), ToString(b.dtype)));
  }
  static constexpr ElementwiseLoop kLoops[] = {
      &SelectLoop<std::uint8_t>, &SelectLoop<std::uint16_t>, &SelectLoop<std::uint32_t>,
      &SelectLoop<std::uint64_t>};
  RunElementwise(out.shape(), operands, 1, kLoops[std::countr_zero(SizeOf(out.dtype()))]);
}

void Where(const KernelContext&, Tensor& out, const Tensor& condition, const Tensor& a,
           const Tensor& b) {
  Select("Where", out, condition, MakeOperand(a), MakeOperand(b));
}

void MaskedFill(const KernelContext&, Tensor& out, const Tensor& x, const Tensor& mask,
                Scalar value) {
  alignas(8) std::byte bytes[8];
  StoreScalar(value, out.dtype(), bytes);
  Select("MaskedFill", out, mask, MakeConstant(bytes, out.dtype()), MakeOperand(x));
}

}  // namespace

#define INFINI_TRAIN_BINARY_KERNEL(Name, table, grain, first, second)                             \
  static void Name##Kernel(const KernelContext&, Tensor& out, const Tensor& a, const Tensor& b) { \
    RunElementwise(#Name, table, out, {first, second}, grain);                                    \
  }                                                                                               \
  REGISTER_KERNEL(kCPU, Name, &Name##Kernel)

INFINI_TRAIN_BINARY_KERNEL(Add, kAdd, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Sub, kSub, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Mul, kMul, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Div, kDiv, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Pow, kPow, kFunctionGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Maximum, kMaximum, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Minimum, kMinimum, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Eq, kEq, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Ne, kNe, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Lt, kLt, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Le, kLe, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(Gt, kLt, kElementGrain, b, a);
INFINI_TRAIN_BINARY_KERNEL(Ge, kLe, kElementGrain, b, a);
INFINI_TRAIN_BINARY_KERNEL(LogicalAnd, kLogicalAnd, kElementGrain, a, b);
INFINI_TRAIN_BINARY_KERNEL(LogicalOr, kLogicalOr, kElementGrain, a, b);
#undef INFINI_TRAIN_BINARY_KERNEL

#define INFINI_TRAIN_SCALAR_KERNEL(Name, table)                                                \
  static void Name##Kernel(const KernelContext&, Tensor& out, const Tensor& x, Scalar value) { \
    RunElementwise(#Name, table, out, {x, value});                                             \
  }                                                                                            \
  REGISTER_KERNEL(kCPU, Name, &Name##Kernel)

INFINI_TRAIN_SCALAR_KERNEL(AddScalar, kAdd);
INFINI_TRAIN_SCALAR_KERNEL(MulScalar, kMul);
INFINI_TRAIN_SCALAR_KERNEL(DivScalar, kDiv);
INFINI_TRAIN_SCALAR_KERNEL(RsubScalar, kReverseSub);
INFINI_TRAIN_SCALAR_KERNEL(RdivScalar, kReverseDiv);
#undef INFINI_TRAIN_SCALAR_KERNEL

REGISTER_KERNEL(kCPU, PowScalar, &PowScalar);
REGISTER_KERNEL(kCPU, Clamp, &Clamp);
REGISTER_KERNEL(kCPU, AddScaled, &AddScaled);
REGISTER_KERNEL(kCPU, Where, &Where);
REGISTER_KERNEL(kCPU, MaskedFill, &MaskedFill);

}  // namespace infini_train::cpu
