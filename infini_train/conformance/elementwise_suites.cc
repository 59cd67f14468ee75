#include "infini_train/conformance/suites.h"

namespace infini_train::conformance {
namespace {

const std::vector<Dims> kShapes = {{1}, {3, 1}, {7, 33}, {5, 3, 65}, {2, 1000}, {0, 4}};
const Dims kBenchmarkShape = {16, 4096};

/// Inputs of a range in which the op is defined and well-conditioned.
struct Range {
  double low = -4;
  double high = 4;
};
constexpr Range kPositive{0.1, 4};
constexpr Range kUnit{-0.9, 0.9};
constexpr Range kProbability{0.05, 0.95};

template <typename Op, Range kRange = Range{}>
std::function<void()> Unary(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape, kRange.low, kRange.high);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<Op>(out, x); };
}

template <typename Op, Range kRange = Range{}>
std::function<void()> UnaryBackward(Trial& trial, const Dims& shape) {
  const Tensor grad_y = trial.Input(shape);
  const Tensor saved = trial.Input(shape, kRange.low, kRange.high);
  Tensor grad_x = trial.Output(shape);
  return [=]() mutable { Call<Op>(grad_x, grad_y, saved); };
}

template <typename Op, Range kFirst = Range{}, Range kSecond = kFirst>
std::function<void()> Binary(Trial& trial, const Dims& shape) {
  const Tensor a = trial.Input(shape, kFirst.low, kFirst.high);
  const Tensor b = trial.Input(shape, kSecond.low, kSecond.high);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<Op>(out, a, b); };
}

template <typename Op>
std::function<void()> Comparison(Trial& trial, const Dims& shape) {
  const Tensor a = trial.Input(shape, 0, 3);
  const Tensor b = trial.Input(shape, 0, 3);
  Tensor out = trial.FixedOutput(shape, DataType::kBool);
  return [=]() mutable { Call<Op>(out, a, b); };
}

/// The number is exact in every dtype.
template <typename Op, Range kRange = Range{}>
std::function<void()> WithScalar(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape, kRange.low, kRange.high);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<Op>(out, x, 2); };
}

template <bool kTanh>
std::function<void()> GeluCall(Trial& trial, const Dims& shape) {
  trial.SetMagnitude(1);
  const Tensor x = trial.Input(shape, -10, 10);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::Gelu>(out, x, kTanh); };
}

template <bool kTanh>
std::function<void()> GeluBackwardCall(Trial& trial, const Dims& shape) {
  const Tensor grad_y = trial.Input(shape);
  const Tensor x = trial.Input(shape, -10, 10);
  Tensor grad_x = trial.Output(shape);
  return [=]() mutable { Call<op::GeluBackward>(grad_x, grad_y, x, kTanh); };
}

std::function<void()> SwiGluCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input({shape[0], 2 * shape[1]}, -4, 4);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::SwiGlu>(out, x); };
}

std::function<void()> SwiGluBackwardCall(Trial& trial, const Dims& shape) {
  const Tensor grad_y = trial.Input(shape);
  const Tensor x = trial.Input({shape[0], 2 * shape[1]}, -4, 4);
  Tensor grad_x = trial.Output({shape[0], 2 * shape[1]});
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::SwiGluBackward>(grad_x, out, grad_y, x); };
}

std::function<void()> FillCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::Fill>(out, 1); };
}

template <DataType kTarget>
std::function<void()> CopyTo(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape, 0, 4);
  Tensor out = trial.FixedOutput(shape, kTarget);
  return [=]() mutable { Call<op::Copy>(out, x); };
}

std::function<void()> CopyCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape, 0, 4);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::Copy>(out, x); };
}

/// Tensors of several sizes.
template <DataType to>
std::function<void()> CopyAllTo(Trial& trial, const Dims& shape) {
  std::vector<Tensor> xs, outs;
  for (const Dims& size : {shape, Dims{1}, Dims{0}, Dims{3, 43}}) {
    xs.push_back(trial.Input(size));
    outs.push_back(trial.FixedOutput(size, to));
  }
  return [=]() mutable { Call<op::CopyAll>(MutableTensorList(outs), TensorList(xs)); };
}

std::function<void()> ArangeCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.Output({shape[0]});
  return [=]() mutable { Call<op::Arange>(out, 3, 2); };
}

std::function<void()> ClampCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape, -4, 4);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::Clamp>(out, x, -1, 2); };
}

std::function<void()> AddScaledCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.InOut(shape);
  const Tensor x = trial.Input(shape);
  return [=]() mutable { Call<op::AddScaled>(out, x, 2); };
}

std::function<void()> WhereCall(Trial& trial, const Dims& shape) {
  const Tensor condition = trial.Mask(shape);
  const Tensor a = trial.Input(shape, 0, 4);
  const Tensor b = trial.Input(shape, 0, 4);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::Where>(out, condition, a, b); };
}

std::function<void()> MaskedFillCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape, 0, 4);
  const Tensor mask = trial.Mask(shape);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::MaskedFill>(out, x, mask, 1); };
}

template <typename Op>
std::function<void()> RandomCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.Output(shape);
  return [=]() mutable {
    constexpr Generator::State kState{42, 7};
    if constexpr (Op::kId == OpId::kRandomInt) {
      Call<Op>(out, -5, 1000, kState);
    } else {
      Call<Op>(out, 1.0, 3.0, kState);
    }
  };
}

std::function<void()> DropoutCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::Dropout>(out, x, 0.25, Generator::State{42, 7}); };
}

/// The rounding of x^2 grows by x^2 in the exponential.
double Forty(const Dims&) {
  return 40;
}

/// A function that appends the suite of an op whose tensors may have any strides.
auto AnyStridesTo(std::vector<OpSuite>& suites) {
  return [&suites](OpId op, std::span<const DataType> dtypes, TrialBody body,
                   ShapeFunction operations) {
    suites.push_back({op, dtypes, kAnyStrides, kShapes, body, operations, kBenchmarkShape});
  };
}

void AppendFillAndCopy(std::vector<OpSuite>& suites) {
  const auto add = AnyStridesTo(suites);
  add(OpId::kFill, kAllTypes, &FillCall, Zero);
  add(OpId::kCopy, kAllTypes, &CopyCall, Zero);
  suites.push_back(
      {OpId::kCopy, kAllTypes, kAnyStrides, {{5, 33}}, &CopyTo<DataType::kFloat32>, Zero});
  suites.push_back(
      {OpId::kCopy, kAllTypes, kAnyStrides, {{5, 33}}, &CopyTo<DataType::kBFloat16>, One});
  suites.push_back(
      {OpId::kCopy, kAllTypes, kContiguousOnly, {{5, 33}}, &CopyTo<DataType::kInt64>, Zero});
  for (const auto body : {&CopyAllTo<DataType::kFloat32>, &CopyAllTo<DataType::kBFloat16>,
                          &CopyAllTo<DataType::kFloat16>}) {
    suites.push_back(
        {OpId::kCopyAll, kFloatingTypes, kRowMajor, {{5, 33}, {70000}}, body, One, {65536}});
  }
  suites.push_back(
      {OpId::kArange, kArithmeticTypes, kContiguousOnly, {{1}, {33}, {100}}, &ArangeCall, One});
}

void AppendUnary(std::vector<OpSuite>& suites) {
  const auto add = AnyStridesTo(suites);
  add(OpId::kNeg, kArithmeticTypes, &Unary<op::Neg>, Zero);
  add(OpId::kAbs, kArithmeticTypes, &Unary<op::Abs>, Zero);
  add(OpId::kSquare, kArithmeticTypes, &Unary<op::Square>, One);
  add(OpId::kExp, kFloatingTypes, &Unary<op::Exp>, Five);
  add(OpId::kLog, kFloatingTypes, &Unary<op::Log, kPositive>, Five);
  add(OpId::kSqrt, kFloatingTypes, &Unary<op::Sqrt, kPositive>, Five);
  add(OpId::kRsqrt, kFloatingTypes, &Unary<op::Rsqrt, kPositive>, Five);
  add(OpId::kReciprocal, kFloatingTypes, &Unary<op::Reciprocal, kPositive>, One);
  add(OpId::kSin, kFloatingTypes, &Unary<op::Sin>, Five);
  add(OpId::kCos, kFloatingTypes, &Unary<op::Cos>, Five);
  add(OpId::kTanh, kFloatingTypes, &Unary<op::Tanh>, Five);
  add(OpId::kSigmoid, kFloatingTypes, &Unary<op::Sigmoid>, Five);
  add(OpId::kSilu, kFloatingTypes, &Unary<op::Silu>, Five);
  add(OpId::kGelu, kFloatingTypes, &GeluCall<true>, Ten);
  add(OpId::kGelu, kFloatingTypes, &GeluCall<false>, Ten);
  add(OpId::kLogicalNot, kBoolOnly, &Unary<op::LogicalNot>, Zero);
}

void AppendUnaryBackward(std::vector<OpSuite>& suites) {
  const auto add = AnyStridesTo(suites);
  add(OpId::kTanhBackward, kFloatingTypes, &UnaryBackward<op::TanhBackward, kUnit>, Five);
  add(OpId::kSigmoidBackward, kFloatingTypes, &UnaryBackward<op::SigmoidBackward, kProbability>,
      Five);
  add(OpId::kSiluBackward, kFloatingTypes, &UnaryBackward<op::SiluBackward>, Five);
  add(OpId::kGeluBackward, kFloatingTypes, &GeluBackwardCall<true>, Forty);
  add(OpId::kGeluBackward, kFloatingTypes, &GeluBackwardCall<false>, Forty);
}

void AppendSwiGlu(std::vector<OpSuite>& suites) {
  const std::vector<Dims> rows = {{1, 1}, {3, 33}, {5, 64}, {2, 1000}, {0, 4}};
  suites.push_back(
      {OpId::kSwiGlu, kFloatingTypes, kRowMajor, rows, &SwiGluCall, Five, kBenchmarkShape});
  suites.push_back({OpId::kSwiGluBackward, kFloatingTypes, kRowMajor, rows, &SwiGluBackwardCall,
                    Five, kBenchmarkShape});
}

void AppendArithmetic(std::vector<OpSuite>& suites) {
  const auto add = AnyStridesTo(suites);
  add(OpId::kAdd, kArithmeticTypes, &Binary<op::Add>, One);
  add(OpId::kSub, kArithmeticTypes, &Binary<op::Sub>, One);
  add(OpId::kMul, kArithmeticTypes, &Binary<op::Mul>, One);
  add(OpId::kDiv, kFloatingTypes, &Binary<op::Div, Range{}, kPositive>, One);
  add(OpId::kPow, kFloatingTypes, &Binary<op::Pow, kPositive, Range{-2, 2}>, Five);
  add(OpId::kMaximum, kArithmeticTypes, &Binary<op::Maximum>, Zero);
  add(OpId::kMinimum, kArithmeticTypes, &Binary<op::Minimum>, Zero);
}

void AppendArithmeticWithScalar(std::vector<OpSuite>& suites) {
  const auto add = AnyStridesTo(suites);
  add(OpId::kAddScalar, kArithmeticTypes, &WithScalar<op::AddScalar>, One);
  add(OpId::kMulScalar, kArithmeticTypes, &WithScalar<op::MulScalar>, One);
  add(OpId::kDivScalar, kFloatingTypes, &WithScalar<op::DivScalar>, One);
  add(OpId::kPowScalar, kFloatingTypes, &WithScalar<op::PowScalar, kPositive>, Five);
  add(OpId::kRsubScalar, kArithmeticTypes, &WithScalar<op::RsubScalar>, One);
  add(OpId::kRdivScalar, kFloatingTypes, &WithScalar<op::RdivScalar, kPositive>, One);
  add(OpId::kClamp, kArithmeticTypes, &ClampCall, Zero);
  add(OpId::kAddScaled, kArithmeticTypes, &AddScaledCall, One);
}

void AppendComparisonAndChoice(std::vector<OpSuite>& suites) {
  const auto add = AnyStridesTo(suites);
  add(OpId::kEq, kArithmeticTypes, &Comparison<op::Eq>, Zero);
  add(OpId::kNe, kArithmeticTypes, &Comparison<op::Ne>, Zero);
  add(OpId::kLt, kArithmeticTypes, &Comparison<op::Lt>, Zero);
  add(OpId::kLe, kArithmeticTypes, &Comparison<op::Le>, Zero);
  add(OpId::kGt, kArithmeticTypes, &Comparison<op::Gt>, Zero);
  add(OpId::kGe, kArithmeticTypes, &Comparison<op::Ge>, Zero);
  add(OpId::kLogicalAnd, kBoolOnly, &Binary<op::LogicalAnd>, Zero);
  add(OpId::kLogicalOr, kBoolOnly, &Binary<op::LogicalOr>, Zero);
  add(OpId::kWhere, kAllTypes, &WhereCall, Zero);
  add(OpId::kMaskedFill, kAllTypes, &MaskedFillCall, Zero);
}

void AppendRandom(std::vector<OpSuite>& suites) {
  const auto random = [&](OpId op, std::span<const DataType> dtypes, TrialBody body,
                          ShapeFunction operations) {
    suites.push_back({.op = op,
                      .dtypes = dtypes,
                      .layouts = kRowMajor,
                      .shapes = {{1}, {33}, {1003}, {0}},
                      .body = body,
                      .operations = operations,
                      .benchmark_shape = {65536},
                      .reference_in_same_dtype = true});
  };
  random(OpId::kRandomUniform, kFloatingTypes, &RandomCall<op::RandomUniform>, One);
  random(OpId::kRandomNormal, kFloatingTypes, &RandomCall<op::RandomNormal>, Five);
  random(OpId::kRandomInt, kIndexTypes, &RandomCall<op::RandomInt>, Zero);
  random(OpId::kDropout, kFloatingTypes, &DropoutCall, One);
}

}  // namespace

void AppendElementwiseSuites(std::vector<OpSuite>& suites) {
  AppendFillAndCopy(suites);
  AppendUnary(suites);
  AppendUnaryBackward(suites);
  AppendSwiGlu(suites);
  AppendArithmetic(suites);
  AppendArithmeticWithScalar(suites);
  AppendComparisonAndChoice(suites);
  AppendRandom(suites);
}

}  // namespace infini_train::conformance
