#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

class ActivationTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ActivationTest);

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// y in x * Sigmoid(y), which is the activation of x, and its slope.
struct Gate {
  double y;
  double slope;
};
Gate SiluGate(double x) {
  return {x, 1};
}
Gate GeluGate(double x) {
  constexpr double kFactor = 2 * 0.79788456080286535588;
  return {kFactor * (x + 0.044715 * x * x * x), kFactor * (1 + 3 * 0.044715 * x * x)};
}

struct ActivationCase {
  const char* name;
  Gate (*gate)(double x);
  void (*call)(Tensor& out, const Tensor& x);
  void (*call_backward)(Tensor& grad_x, const Tensor& grad_y, const Tensor& x);
};

const ActivationCase kActivations[] = {
    {"Silu", SiluGate, [](Tensor& out, const Tensor& x) { Call<op::Silu>(out, x); },
     [](Tensor& g, const Tensor& gy, const Tensor& x) { Call<op::SiluBackward>(g, gy, x); }},
    {"Gelu", GeluGate, [](Tensor& out, const Tensor& x) { Call<op::Gelu>(out, x, true); },
     [](Tensor& g, const Tensor& gy, const Tensor& x) { Call<op::GeluBackward>(g, gy, x, true); }},
};

/// Every number of a half type, NaNs and infinities among them.
Tensor EveryNumber(Device device, DataType dtype) {
  std::vector<std::uint16_t> bits(1 << 16);
  std::iota(bits.begin(), bits.end(), std::uint16_t{0});
  Tensor numbers = Tensor::Empty({1 << 16}, dtype, device);
  numbers.CopyFromHost(bits.data(), bits.size() * sizeof(bits[0]));
  return numbers;
}

/// Roundings in float behind Sigmoid(y) relative to its size: those of y, as far as it is not 0 or
/// 1, and of the functions.
double Roundings(double y) {
  return 8 + 3 * std::min(std::fabs(y), 88.0);
}

/// What else a factor of the sigmoid may add to an error, in the same units: one below the normal
/// numbers may be 0, and the CPU adds 1 to a tanh, which cancels. Neither is so where factors are
/// large.
double Lost(Device device, double factor) {
  constexpr double kUnit = 0x1p-24;
  // An accelerator has kernels for all activations or none.
  const bool by_cpu = device.is_cpu() || !HasKernel(device.type(), OpId::kGelu);
  const double lost = by_cpu ? 8 : 0x1p-126 / kUnit;
  return lost * (1 + std::min(std::fabs(factor), 1000.0));
}

/// Rounds once, in both tails too: what arithmetic in float adds is far below the half types.
TEST_P(ActivationTest, EveryHalfIsRoundedOnce) {
  for (const ActivationCase& activation : kActivations) {
    for (DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
      SCOPED_TRACE(activation.name);
      const Tensor x = EveryNumber(device(), dtype);
      const Tensor ones =
          MakeTensor(device(), dtype, x.shape(), std::vector<double>(x.numel(), 1.0));
      const std::vector<double> inputs = ToDoubles(x);
      std::vector<double> values, scales, slopes, slope_scales;
      for (double input : inputs) {
        // Both have reached their limits there.
        const double low = std::fmax(input, -1000), clipped = std::fmin(low, 1000);
        const Gate gate = activation.gate(clipped);
        const double on = Sigmoid(gate.y), off = Sigmoid(-gate.y);
        const double curved = clipped * on * off * gate.slope;
        const double roundings = Roundings(gate.y);
        values.push_back(std::isnan(input) ? input : low * on);
        scales.push_back(roundings * std::fabs(low * on) + Lost(device(), clipped));
        slopes.push_back(std::isnan(input) ? input : on + curved);
        slope_scales.push_back(roundings * (on + std::fabs(curved)) +
                               Lost(device(), clipped * gate.slope));
      }
      Tensor out = MakeOutput(device(), dtype, x.shape());
      activation.call(out, x);
      ExpectClose(out, values, {}, scales);
      activation.call_backward(out, ones, x);
      ExpectClose(out, slopes, {}, slope_scales);
    }
  }
}

TEST_P(ActivationTest, EverySigmoidOfAHalfIsRoundedOnce) {
  for (DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    const Tensor x = EveryNumber(device(), dtype);
    std::vector<double> values, scales;
    for (double input : ToDoubles(x)) {
      values.push_back(Sigmoid(input));
      scales.push_back(Roundings(input) * values.back() + Lost(device(), 0));
    }
    Tensor out = MakeOutput(device(), dtype, x.shape());
    Call<op::Sigmoid>(out, x);
    ExpectClose(out, values, {}, scales);
  }
}

}  // namespace
}  // namespace infini_train::test
