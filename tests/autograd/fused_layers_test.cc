// Layers of a LLaMA block that are one function each, beside what they are made of.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/common/gradcheck.h"

namespace infini_train {
namespace {

using test::CheckGradients;
using test::ExpectClose;
using test::ExpectSameBits;
using test::Inputs;
using test::ToDoubles;

class FusedLayerTest : public DeviceTest {
 protected:
  static Tensor Doubles(const Dims& shape) {
    return Normal(shape, 0, 1, DataType::kFloat64, device());
  }

  static RotaryHeads Angles(std::int64_t positions, std::int64_t head_dim) {
    const Tensor angles = Uniform({positions, head_dim / 2}, 0, 6, DataType::kFloat64, device());
    return {.cos = Cos(angles), .sin = Sin(angles)};
  }

  /// The results of both functions and all gradients agree.
  static void ExpectSame(const std::function<Tensor(const Inputs&)>& fused,
                         const std::function<Tensor(const Inputs&)>& parts,
                         const std::vector<Dims>& shapes) {
    std::vector<Inputs> leaves(2);
    for (const Dims& shape : shapes) {
      const Tensor value = Doubles(shape);
      for (Inputs& inputs : leaves) {
        inputs.push_back(Clone(value));
        inputs.back().set_requires_grad(true);
      }
    }
    const Tensor a = fused(leaves[0]);
    const Tensor b = parts(leaves[1]);
    ExpectClose(a, ToDoubles(b), {.operations = 64, .scale = 4});
    const Tensor grad = Doubles(a.shape());
    Backward(Sum(a * grad));
    Backward(Sum(b * grad));
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectClose(leaves[0][i].grad(), ToDoubles(leaves[1][i].grad()),
                  {.operations = 256, .scale = 16});
    }
  }
};

TEST_P(FusedLayerTest, SwiGluMlpIsItsParts) {
  const auto parts = [](const Inputs& x) {
    return Linear(SwiGlu(Linear(x[0], x[1], x[2])), x[3], x[4]);
  };
  const auto fused = [](const Inputs& x) { return SwiGluMlp(x[0], x[1], x[2], x[3], x[4]); };
  ExpectSame(fused, parts, {{2, 3, 5}, {14, 5}, {14}, {4, 7}, {4}});
  ExpectSame([](const Inputs& x) { return SwiGluMlp(x[0], x[1], {}, x[2], {}); },
             [](const Inputs& x) { return Linear(SwiGlu(Linear(x[0], x[1])), x[2]); },
             {{6, 5}, {16, 5}, {5, 8}});
}

TEST_P(FusedLayerTest, SwiGluMlpGradients) {
  CheckGradients(
      device(),
      {.name = "SwiGluMlp",
       .function = [](const Inputs& x) { return SwiGluMlp(x[0], x[1], x[2], x[3], x[4]); },
       .inputs = {{{3, 4}}, {{6, 4}}, {{6}}, {{2, 3}}, {{2}}},
       .operations = 64});
}

// Where a parameter or the input is frozen, the others' gradients stay what they are.
TEST_P(FusedLayerTest, SwiGluMlpWithFrozenInputs) {
  const std::vector<Dims> shapes = {{3, 4}, {6, 4}, {6}, {2, 3}, {2}};
  Inputs values;
  for (const Dims& shape : shapes)
    values.push_back(Doubles(shape));
  const auto gradients = [&](std::uint32_t trained) {
    Inputs inputs;
    for (std::size_t i = 0; i < values.size(); ++i) {
      inputs.push_back(Clone(values[i]));
      inputs[i].set_requires_grad((trained >> i & 1) != 0);
    }
    Backward(Sum(SwiGluMlp(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4])));
    return inputs;
  };
  const Inputs all = gradients(31);
  for (std::uint32_t trained = 1; trained < 31; ++trained) {
    const Inputs some = gradients(trained);
    for (std::size_t i = 0; i < values.size(); ++i) {
      SCOPED_TRACE(testing::Message() << trained << ", input " << i);
      const bool wanted = (trained >> i & 1) != 0;
      ASSERT_EQ(some[i].grad().defined(), wanted);
      if (wanted) ExpectSameBits(some[i].grad(), all[i].grad());
    }
  }
}

/// Heads of a projection one by one.
Tensor AttentionByParts(const Tensor& qkv, std::int64_t num_heads, std::int64_t num_kv_heads,
                        const RotaryHeads& rotary, AttentionParams params,
                        const Tensor& lengths = {}) {
  const std::int64_t head_dim = qkv.size(2) / (num_heads + 2 * num_kv_heads);
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    const Tensor part = Slice(qkv, 2, first * head_dim, (first + count) * head_dim);
    return Transpose(Reshape(part, {qkv.size(0), qkv.size(1), count, head_dim}), 1, 2);
  };
  const auto prepared = [&](const Tensor& x, const Tensor& norm) {
    return Rotary(norm.defined() ? RmsNorm(x, norm, rotary.norm_eps) : x, rotary.cos, rotary.sin);
  };
  const Tensor out =
      ScaledDotProductAttention(prepared(heads(0, num_heads), rotary.query_norm),
                                prepared(heads(num_heads, num_kv_heads), rotary.key_norm),
                                heads(num_heads + num_kv_heads, num_kv_heads), params, lengths);
  return Reshape(Transpose(out, 1, 2), {qkv.size(0), qkv.size(1), num_heads * head_dim});
}

TEST_P(FusedLayerTest, RotaryAttentionIsItsParts) {
  for (const std::int64_t kv_heads : {1, 2, 4}) {
    for (const bool norms : {false, true}) {
      SCOPED_TRACE(testing::Message() << kv_heads << (norms ? " with norms" : ""));
      constexpr std::int64_t kHeads = 4, kSize = 6, kPositions = 5;
      const RotaryHeads angles = Angles(kPositions, kSize);
      const auto rotary = [&](const Inputs& x) {
        RotaryHeads result = angles;
        if (norms) {
          result.query_norm = x[1];
          result.key_norm = x[2];
        }
        return result;
      };
      std::vector<Dims> shapes = {{2, kPositions, (kHeads + 2 * kv_heads) * kSize}};
      if (norms) shapes.insert(shapes.end(), 2, Dims{kSize});
      ExpectSame(
          [&](const Inputs& x) {
            return PackedRotaryAttention(x[0], kHeads, kv_heads, rotary(x), {.scale = 0});
          },
          [&](const Inputs& x) {
            return AttentionByParts(x[0], kHeads, kv_heads, rotary(x), {.scale = 0});
          },
          shapes);
    }
  }
}

TEST_P(FusedLayerTest, RotaryAttentionOfPackedSamples) {
  const RotaryHeads angles = Angles(7, 4);
  const Tensor lengths = To(test::MakeTensor({}, DataType::kInt32, {3}, {0, 3, 7}), device());
  ExpectSame(
      [&](const Inputs& x) {
        return PackedRotaryAttention(x[0], 2, 1, angles, {.scale = 0}, lengths);
      },
      [&](const Inputs& x) { return AttentionByParts(x[0], 2, 1, angles, {.scale = 0}, lengths); },
      {{1, 7, 16}});
}

TEST_P(FusedLayerTest, RotaryAttentionGradients) {
  const RotaryHeads angles = Angles(3, 4);
  CheckGradients(device(), {.name = "rotary attention",
                            .function =
                                [&](const Inputs& x) {
                                  return PackedRotaryAttention(x[0], 2, 1, angles, {.scale = 0});
                                },
                            .inputs = {{{2, 3, 16}}},
                            .operations = 128});
  CheckGradients(device(), {.name = "rotary attention with norms",
                            .function =
                                [&](const Inputs& x) {
                                  RotaryHeads rotary = angles;
                                  rotary.query_norm = x[1];
                                  rotary.key_norm = x[2];
                                  return PackedRotaryAttention(x[0], 2, 1, rotary, {.scale = 0});
                                },
                            .inputs = {{{2, 3, 16}}, {{4}}, {{4}}},
                            .operations = 256});
}

TEST_P(FusedLayerTest, RotaryAttentionInBFloat16) {
  const RotaryHeads angles = Angles(40, 16);
  const Tensor qkv = Normal({1, 40, 64}, 0, 1, DataType::kFloat32, device());
  const Autocast autocast(DataType::kBFloat16);
  const Tensor out = PackedRotaryAttention(qkv, 2, 1, angles, {.scale = 0});
  EXPECT_EQ(out.dtype(), DataType::kBFloat16);
  const Tensor expected =
      AttentionByParts(To(qkv, DataType::kBFloat16), 2, 1, angles, {.scale = 0});
  // Both round the weights of the positions, and their sum, as libraries do.
  ExpectClose(out, ToDoubles(expected),
              {.operations = 4, .scale = 2, .compute = DataType::kBFloat16});
}

TEST_P(FusedLayerTest, MistakesAreErrors) {
  const RotaryHeads angles = Angles(2, 4);
  const Tensor qkv = Doubles({1, 2, 16});
  EXPECT_NO_THROW(PackedRotaryAttention(qkv, 2, 1, angles, {}));
  EXPECT_THROW(PackedRotaryAttention(qkv, 3, 2, angles, {}), Error);
  EXPECT_THROW(PackedRotaryAttention(qkv, 2, 1, Angles(3, 4), {}), Error);
  EXPECT_THROW(PackedRotaryAttention(Doubles({1, 2, 12}), 2, 1, Angles(2, 2), {}), Error);
  RotaryHeads half = angles;
  half.query_norm = Doubles({4});
  EXPECT_THROW(PackedRotaryAttention(qkv, 2, 1, half, {}), Error);
  half.key_norm = Doubles({5});
  EXPECT_THROW(PackedRotaryAttention(qkv, 2, 1, half, {}), Error);
  EXPECT_THROW(SwiGluMlp(Doubles({3, 4}), Doubles({6, 5}), {}, Doubles({2, 3}), {}), Error);
  EXPECT_THROW(SwiGluMlp(Doubles({3, 4}), Doubles({5, 4}), {}, Doubles({2, 2}), {}), Error);
  EXPECT_THROW(SwiGluMlp(Doubles({3, 4}), Doubles({6, 4}), {}, Doubles({2, 6}), {}), Error);
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(FusedLayerTest);

}  // namespace
}  // namespace infini_train
