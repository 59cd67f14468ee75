#include "infini_train/kernels/cpu/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace infini_train::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Distance in units of the last place of the exact result.
double UlpError(float found, double exact) {
  if (std::isnan(exact)) return std::isnan(found) ? 0 : kInfinity;
  const float nearest = static_cast<float>(exact);
  if (std::isinf(nearest) || std::isinf(found)) return found == nearest ? 0 : kInfinity;
  const float magnitude = std::fabs(nearest);
  const double ulp = static_cast<double>(std::nextafter(magnitude, kInfinity)) - magnitude;
  return std::fabs(found - exact) / ulp;
}

/// The largest error over a sample of all floats, in loops of the kind that kernels have.
template <typename Function, typename Exact>
double WorstError(const Function& function, const Exact& exact) {
  constexpr std::uint32_t kStep = 4099;
  constexpr int kBlock = 1024;
  std::vector<float> inputs(kBlock);
  std::vector<float> outputs(kBlock);
  double worst = 0;
  for (std::uint64_t start = 0; start < (std::uint64_t{1} << 32); start += kStep * kBlock) {
    for (std::uint32_t i = 0; i < kBlock; ++i)
      inputs[i] = std::bit_cast<float>(static_cast<std::uint32_t>(start) + i * kStep);
    for (int i = 0; i < kBlock; ++i)
      outputs[i] = function(inputs[i]);
    for (int i = 0; i < kBlock; ++i)
      worst = std::max(worst, UlpError(outputs[i], exact(static_cast<double>(inputs[i]))));
  }
  return worst;
}

TEST(MathTest, Exp) {
  EXPECT_LT(WorstError([](float x) { return Exp(x); }, [](double x) { return std::exp(x); }), 1.0);
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(kNaN)));
}

TEST(MathTest, Log) {
  EXPECT_LT(WorstError([](float x) { return Log(x); }, [](double x) { return std::log(x); }), 1.0);
  EXPECT_EQ(Log(1.0f), 0.0f);
  EXPECT_EQ(Log(0.0f), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-1.0f)));
  EXPECT_TRUE(std::isnan(Log(kNaN)));
}

TEST(MathTest, Tanh) {
  EXPECT_LT(WorstError([](float x) { return Tanh(x); }, [](double x) { return std::tanh(x); }),
            2.5);
  EXPECT_EQ(Tanh(kInfinity), 1.0f);
  EXPECT_EQ(Tanh(-1e13f), -1.0f);
  EXPECT_TRUE(std::signbit(Tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(Tanh(kNaN)));
}

TEST(MathTest, Sigmoid) {
  const auto exact = [](double x) {
    return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
  };
  EXPECT_LT(WorstError([](float x) { return Sigmoid(x); }, exact), 2.5);
  EXPECT_EQ(Sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(Sigmoid(kInfinity), 1.0f);
  EXPECT_TRUE(std::isnan(Sigmoid(kNaN)));
  EXPECT_NEAR(Sigmoid(-40.0), std::exp(-40.0), 1e-32);
}

TEST(MathTest, Erf) {
  EXPECT_LT(WorstError([](float x) { return Erf(x); }, [](double x) { return std::erf(x); }), 1.5);
  EXPECT_EQ(Erf(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(Erf(kNaN)));
}

TEST(MathTest, BoundsKeepNaN) {
  EXPECT_TRUE(std::isnan(AtLeast(kNaN, 0.0f)));
  EXPECT_TRUE(std::isnan(AtMost(kNaN, 0.0f)));
  EXPECT_EQ(AtLeast(-2.0f, -1.0f), -1.0f);
  EXPECT_EQ(AtMost(2.0f, 1.0f), 1.0f);
}

}  // namespace
}  // namespace infini_train::cpu
