#include "infini_train/nn/rotary_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"

namespace infini_train::nn {
namespace {

TransformerConfig Llama3(std::int64_t head_dim, double factor) {
  TransformerConfig config;
  config.position_embedding = PositionEmbedding::kRotary;
  config.head_dim = head_dim;
  config.max_position_embeddings = 1024;
  config.rope_theta = 500000;
  config.rope_scaling = RopeScaling{factor, 1, 4, 8192};
  return config;
}

void ExpectFrequency(const std::vector<double>& frequencies, std::size_t i, double expected) {
  EXPECT_NEAR(frequencies.at(i), expected, 1e-6 * expected) << "pair " << i;
}

// Values of Llama 3.2 1B's configuration.
TEST(RotaryInverseFrequencies, AreScaledAsLlama32) {
  const std::vector<double> f = RotaryInverseFrequencies(Llama3(64, 32));
  ASSERT_EQ(f.size(), 32u);
  ExpectFrequency(f, 0, 1);
  ExpectFrequency(f, 13, 4.839421e-3);
  ExpectFrequency(f, 14, 3.211446e-3);
  ExpectFrequency(f, 15, 1.290548e-3);
  ExpectFrequency(f, 16, 4.295568e-4);
  ExpectFrequency(f, 17, 9.708288e-5);
  ExpectFrequency(f, 18, 1.946164e-5);
  ExpectFrequency(f, 31, 9.418307e-8);
}

// Values of Llama 3.1 8B's configuration.
TEST(RotaryInverseFrequencies, AreScaledAsLlama31) {
  const std::vector<double> f = RotaryInverseFrequencies(Llama3(128, 8));
  ASSERT_EQ(f.size(), 64u);
  ExpectFrequency(f, 28, 3.211446e-3);
  ExpectFrequency(f, 29, 2.166571e-3);
  ExpectFrequency(f, 30, 1.371894e-3);
  ExpectFrequency(f, 34, 1.785078e-4);
  ExpectFrequency(f, 35, 9.556212e-5);
  for (std::size_t i = 35; i < 64; ++i) {
    ExpectFrequency(f, i, std::pow(500000.0, -static_cast<double>(i) / 64) / 8);
  }
}

TEST(RotaryInverseFrequencies, WithoutScalingArePowersOfTheta) {
  TransformerConfig config = Llama3(64, 32);
  config.rope_scaling.reset();
  const std::vector<double> f = RotaryInverseFrequencies(config);
  ExpectFrequency(f, 15, 2.131120e-3);
  ExpectFrequency(f, 18, 6.227724e-4);
  ExpectFrequency(f, 31, 3.013858e-6);
}

/// q · k of unit vectors at dimension `pair` whose positions are `distance` apart.
double DotOfRotatedUnits(Device device, const TransformerConfig& config, std::int64_t pair,
                         std::int64_t start, std::int64_t distance) {
  std::vector<float> unit(static_cast<std::size_t>(config.head_dim), 0.0f);
  unit[static_cast<std::size_t>(pair)] = 1.0f;
  const Tensor x = To(Tensor::FromVector(unit, {1, 1, 1, config.head_dim}), device);
  RotaryTable table(config, device);
  const auto rotate = [&](std::int64_t position) {
    const auto [cos, sin] = table.Rows(position, 1);
    return Rotary(x, cos, sin);
  };
  return Sum(rotate(start) * rotate(start + distance)).Item();
}

class RotaryTableTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RotaryTableTest);

TEST_P(RotaryTableTest, ScalingReachesTheRotation) {
  TransformerConfig config = Llama3(64, 32);
  EXPECT_NEAR(DotOfRotatedUnits(device(), config, 16, 0, 1000), 0.909150, 1e-6);
  config.rope_scaling.reset();
  EXPECT_NEAR(DotOfRotatedUnits(device(), config, 16, 0, 1000), 0.155944, 1e-6);
}

// Angles formed in bfloat16 could not tell position 256 from 257.
TEST_P(RotaryTableTest, NeighboursDifferAtEveryPosition) {
  TransformerConfig config = Llama3(64, 32);
  config.rope_theta = 10000;
  config.rope_scaling.reset();
  config.max_position_embeddings = 40'000;
  for (const std::int64_t position : {0, 255, 256, 511, 4096, 32'767, 39'998}) {
    EXPECT_NEAR(DotOfRotatedUnits(device(), config, 0, position, 1), std::cos(1.0), 1e-6)
        << position;
  }
}

TEST_P(RotaryTableTest, HoldsCosinesAndSinesOfPositionTimesFrequency) {
  const TransformerConfig config = Llama3(64, 32);
  const std::vector<double> f = RotaryInverseFrequencies(config);
  const auto [cos, sin] = RotaryTable(config, device()).Rows(1000, 2);
  EXPECT_EQ(cos.shape(), Dims({2, 32}));
  EXPECT_EQ(cos.dtype(), DataType::kFloat32);
  const std::vector<float> c = cos.ToVector<float>();
  const std::vector<float> s = sin.ToVector<float>();
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_NEAR(c[i], std::cos(1000 * f[i]), 6e-8);
    EXPECT_NEAR(s[32 + i], std::sin(1001 * f[i]), 6e-8);
  }
}

TEST_P(RotaryTableTest, GivesTheRowsOfPositions) {
  RotaryTable table(Llama3(64, 32), device());
  const std::vector<std::int64_t> positions = {7, 0, 1001, 7};
  const auto [cos, sin] = table.Rows(To(Tensor::FromVector(positions, {4}), device()), 1002);
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto [row_cos, row_sin] = table.Rows(positions[static_cast<std::size_t>(i)], 1);
    test::ExpectSameBits(Contiguous(Slice(cos, 0, i, i + 1)), row_cos);
    test::ExpectSameBits(Contiguous(Slice(sin, 0, i, i + 1)), row_sin);
  }
}

// Positions that a table formed in bfloat16 would have wrong.
TEST_P(RotaryTableTest, HoldsLargePositionsExactly) {
  TransformerConfig config = Llama3(64, 32);
  config.rope_scaling.reset();
  config.max_position_embeddings = 8192;
  RotaryTable table(config, device());
  const struct {
    std::int64_t position;
    double cos;
    double sin;
  } rows[] = {{256, -0.03979076, -0.99920803},  {257, 0.81930553, -0.57335717},
              {300, -0.02209662, -0.99975584},  {301, 0.82932668, -0.55876405},
              {4095, -0.06597600, -0.99782121}, {8191, -0.64639047, -0.76300679}};
  for (const auto& row : rows) {
    const auto [cos, sin] = table.Rows(row.position, 1);
    EXPECT_NEAR(cos.ToVector<float>()[0], row.cos, 1e-7) << row.position;
    EXPECT_NEAR(sin.ToVector<float>()[0], row.sin, 1e-7) << row.position;
  }
}

TEST_P(RotaryTableTest, GrowsWithThePositionsThatAreUsed) {
  TransformerConfig config = Llama3(4, 32);
  config.max_position_embeddings = 2'000'000'000;
  RotaryTable table(config, device());
  const auto [cos, sin] = table.Rows(3, 2);
  const std::vector<float> before = cos.ToVector<float>();
  // What was handed out, as to a captured graph, stays as it is.
  test::ExpectSameBits(table.Rows(3, 2).first, cos);
  const auto [far_cos, far_sin] = table.Rows(5000, 1);
  EXPECT_NEAR(far_cos.ToVector<float>()[0], std::cos(5000.0), 1e-7);
  EXPECT_EQ(cos.ToVector<float>(), before);
  test::ExpectSameBits(table.Rows(3, 2).first, cos);
}

TEST_P(RotaryTableTest, EndsWithThePositionsOfTheConfiguration) {
  RotaryTable table(Llama3(64, 32), device());
  table.Reserve(1'000'000'000'000);
  EXPECT_EQ(table.Rows(1023, 1).first.shape(), Dims({1, 32}));
  EXPECT_THROW(table.Rows(1023, 2), Error);
}

TEST(RopeScaling, IsValidated) {
  TransformerConfig config = Llama3(64, 32);
  config.vocab_size = config.hidden_size = config.num_hidden_layers = 8;
  config.num_attention_heads = config.num_key_value_heads = config.intermediate_size = 8;
  EXPECT_NO_THROW(config.Validate());
  config.rope_scaling->high_freq_factor = 1;
  EXPECT_ERROR(config.Validate(), "rope_scaling: expected a positive factor");
  config = Llama3(63, 32);
  EXPECT_ERROR(config.Validate(), "head_dim: expected an even number for rotary positions, got 63");
}

}  // namespace
}  // namespace infini_train::nn
