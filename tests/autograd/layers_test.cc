#include <gtest/gtest.h>

#include <cmath>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/common/gradcheck.h"

namespace infini_train {
namespace {

using test::CheckGradients;
using test::ExpectClose;
using test::ExpectEqual;
using test::GradCheck;
using test::GradInput;
using test::Inputs;
using test::MakeTensor;
using test::Outputs;
using test::ToDoubles;

/// The functions that a transformer is made of.
class LayerTest : public DeviceTest {
 protected:
  Tensor Ids(const Dims& shape, const std::vector<double>& values,
             DataType dtype = DataType::kInt64) const {
    return MakeTensor(device(), dtype, shape, values);
  }
  Tensor Doubles(const Dims& shape) const {
    return Normal(shape, 0, 1, DataType::kFloat64, device());
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(LayerTest);

TEST_P(LayerTest, LinearGradients) {
  for (const Dims& shape : {Dims{5}, Dims{3, 5}, Dims{2, 3, 5}, Dims{0, 5}}) {
    CheckGradients(device(), {.name = "Linear of " + shape.ToString(),
                              .function = [](const Inputs& x) { return Linear(x[0], x[1], x[2]); },
                              .inputs = {{shape}, {{4, 5}}, {{4}}},
                              .operations = 32});
    CheckGradients(device(), {.name = "Linear without bias of " + shape.ToString(),
                              .function = [](const Inputs& x) { return Linear(x[0], x[1]); },
                              .inputs = {{shape}, {{1, 5}}},
                              .operations = 32});
  }
}

TEST_P(LayerTest, MatmulGradients) {
  const struct {
    Dims a;
    Dims b;
  } kCases[] = {
      {{3, 4}, {4, 5}},
      {{4}, {4}},
      {{4}, {4, 3}},
      {{3, 4}, {4}},
      {{2, 3, 4}, {4, 2}},
      {{3, 4}, {2, 4, 2}},
      {{2, 1, 3, 2}, {3, 2, 4}},
      {{1, 3}, {3, 1}},
      {{0, 3}, {3, 2}},
      {{2, 0}, {0, 3}},
  };
  for (const auto& c : kCases) {
    CheckGradients(device(), {.name = "Matmul of " + c.a.ToString() + " and " + c.b.ToString(),
                              .function = [](const Inputs& x) { return Matmul(x[0], x[1]); },
                              .inputs = {{c.a}, {c.b}},
                              .operations = 32});
  }
  CheckGradients(device(),
                 {.name = "Matmul with a transposed operand",
                  .function = [](const Inputs& x) { return Matmul(x[0], Transpose(x[1], 0, 1)); },
                  .inputs = {{{3, 4}}, {{5, 4}}},
                  .operations = 32});
}

TEST_P(LayerTest, GradientsAddUpInParameters) {
  const Tensor weight = Full({2, 3}, 0.5, DataType::kFloat32, device());
  const Tensor bias = Full({2}, 0, DataType::kFloat32, device());
  weight.set_requires_grad();
  bias.set_requires_grad();
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 3}, {1, 2, 3, 4, 5, 6});
  for (int pass = 1; pass <= 3; ++pass) {
    // Two uses in one graph, and the graphs of several passes.
    Backward(Sum(Linear(x, weight, bias)) + Sum(Linear(x, weight)));
    ExpectEqual(weight.grad(),
                {10.0 * pass, 14.0 * pass, 18.0 * pass, 10.0 * pass, 14.0 * pass, 18.0 * pass});
    ExpectEqual(bias.grad(), {2.0 * pass, 2.0 * pass});
  }
}

TEST_P(LayerTest, EmbeddingGradients) {
  for (const DataType dtype : {DataType::kInt64, DataType::kInt32}) {
    const Tensor ids = Ids({2, 3}, {1, 0, 4, 1, 1, 3}, dtype);
    const Tensor nothing = Ids({0}, {}, dtype);
    CheckGradients(device(), {.name = "Embedding",
                              .function = [&](const Inputs& x) { return Embedding(x[0], ids); },
                              .inputs = {{{5, 3}}}});
    CheckGradients(device(), {.name = "Embedding of nothing",
                              .function = [&](const Inputs& x) { return Embedding(x[0], nothing); },
                              .inputs = {{{5, 3}}}});
    // As a tied output layer uses it.
    CheckGradients(device(),
                   {.name = "Embedding and Linear",
                    .function = [&](const Inputs& x) { return Linear(Embedding(x[0], ids), x[0]); },
                    .inputs = {{{5, 3}}},
                    .operations = 32});
  }
}

TEST_P(LayerTest, NormGradients) {
  for (const Dims& shape : {Dims{5}, Dims{2, 3, 7}, Dims{0, 5}, Dims{3, 1}}) {
    const Dims parameters = {shape.back()};
    // A row of one element has no slope, and neither has one of equal elements.
    const bool expanded = shape.back() > 1 && shape.size() > 1;
    const std::vector<GradCheck> kChecks = {
        {.name = "LayerNorm",
         .function = [](const Inputs& x) { return LayerNorm(x[0], x[1], x[2]); },
         .inputs = {{shape}, {parameters}, {parameters}}},
        {.name = "LayerNorm without bias",
         .function = [](const Inputs& x) { return LayerNorm(x[0], x[1], Tensor(), 1e-3); },
         .inputs = {{shape}, {parameters}}},
        {.name = "LayerNorm without weight",
         .function = [](const Inputs& x) { return LayerNorm(x[0], Tensor(), x[1], 0.1); },
         .inputs = {{shape}, {parameters}}},
        {.name = "LayerNorm without parameters",
         .function = [](const Inputs& x) { return LayerNorm(x[0], Tensor(), Tensor()); },
         .inputs = {{shape}}},
        {.name = "RmsNorm",
         .function = [](const Inputs& x) { return RmsNorm(x[0], x[1]); },
         .inputs = {{shape}, {parameters}}},
        {.name = "AddLayerNorm",
         .function = [](const Inputs& x) { return AddLayerNorm(x[0], x[1], x[2], x[3]); },
         .inputs = {{shape}, {shape}, {parameters}, {parameters}}},
        {.name = "the sum of AddLayerNorm alone",
         .function = [](const Inputs& x) { return AddLayerNorm(x[0], x[1], Tensor(), {}).first; },
         .inputs = {{shape}, {shape}}},
        {.name = "AddRmsNorm",
         .function = [](const Inputs& x) { return AddRmsNorm(x[0], x[1], x[2], 0.1); },
         .inputs = {{shape}, {shape}, {parameters}}},
        {.name = "AddRmsNorm of a broadcast residual",
         .function = [](const Inputs& x) { return AddRmsNorm(x[0], x[1], Tensor(), 0.1).second; },
         .inputs = {{shape}, {parameters}}},
        {.name = "RmsNorm without weight",
         .function = [](const Inputs& x) { return RmsNorm(x[0], Tensor(), 0.1); },
         .inputs = {{shape}}},
    };
    for (GradCheck check : kChecks) {
      check.name += " of " + shape.ToString();
      check.expanded = expanded;
      check.operations = shape.back() > 1 ? 48 : 0;
      CheckGradients(device(), check);
    }
  }
}

/// The gradient of a linear's bias comes from the norm's pass where the norm alone makes it.
TEST_P(LayerTest, BiasGradientsOfALinearBeforeANorm) {
  // Of x [2, 3, 5], a weight [4, 5] and bias [4], and a residual [2, 3, 4].
  const auto branch = [](const Inputs& x) { return Linear(x[0], x[1], x[2]); };
  const auto both = [](const std::pair<Tensor, Tensor>& sum_and_norm) {
    return Mul(sum_and_norm.first, Gelu(sum_and_norm.second));
  };
  const GradInput kWeight = {{4}}, kBias = {{4}}, kProjection = {{4, 4}};
  const struct {
    const char* name;
    std::function<Outputs(const Inputs&)> function;
    std::vector<GradInput> more_inputs;
  } kCases[] = {
      {"a branch of a stream",
       [&](const Inputs& x) { return both(AddLayerNorm(x[3], branch(x), x[4], x[5])); },
       {kWeight, kBias}},
      {"a stream",
       [&](const Inputs& x) { return both(AddLayerNorm(branch(x), x[3], x[4], {})); },
       {kWeight}},
      {"a sum of both",
       [&](const Inputs& x) { return both(AddLayerNorm(x[3] + branch(x), {}, x[4], {})); },
       {kWeight}},
      {"an MLP",
       [&](const Inputs& x) {
         return both(AddLayerNorm(x[3], GeluMlp(x[0], x[1], x[2], x[4], x[5]), {}, {}));
       },
       {kProjection, kBias}},
      {"a branch that is used twice",
       [&](const Inputs& x) {
         const Tensor out = branch(x);
         return both(AddLayerNorm(x[3], out, {}, {})) + Gelu(out);
       },
       {}},
      {"branch and stream in one",
       [&](const Inputs& x) {
         const Tensor out = branch(x) + x[3];
         return both(AddLayerNorm(out, out, {}, {}));
       },
       {}},
      {"a difference",
       [&](const Inputs& x) { return both(AddLayerNorm(x[3] - branch(x), {}, {}, {})); },
       {}},
      {"a broadcast branch",
       [&](const Inputs& x) {
         const Tensor row = Linear(Slice(x[0], 1, 0, 1), x[1], x[2]);
         return both(AddLayerNorm(x[3] + row, {}, {}, {}));
       },
       {}},
      {"a branch that a hook watches",
       [&](const Inputs& x) {
         const Tensor out = branch(x);
         if (out.requires_grad()) RegisterHook(out, [](const Tensor& grad) { return Clone(grad); });
         return both(AddLayerNorm(x[3], out, {}, {}));
       },
       {}},
      {"a checkpoint's output",
       [&](const Inputs& x) {
         const auto function = [&](const Inputs& y) { return Inputs{y[3] + branch(y)}; };
         return both(AddLayerNorm(Checkpoint(function, x)[0], {}, {}, {}));
       },
       {}},
  };
  for (const auto& [name, function, more_inputs] : kCases) {
    GradCheck check = {name, function, {{{2, 3, 5}}, {{4, 5}}, {{4}}, {{2, 3, 4}}}};
    check.inputs.insert(check.inputs.end(), more_inputs.begin(), more_inputs.end());
    check.operations = 96;
    CheckGradients(device(), check);
  }
}

TEST_P(LayerTest, AHookThatChangesAGradientChangesTheBiasGradient) {
  const auto bias_grad = [this](bool doubled) {
    const Tensor bias = Full({4}, 0.5, DataType::kFloat64, device());
    bias.set_requires_grad();
    const Tensor x = MakeTensor(device(), DataType::kFloat64, {2, 4}, {1, -2, 3, 0, 2, 1, 0, 4});
    const Tensor out = Linear(x, Full({4, 4}, 0.25, DataType::kFloat64, device()), bias);
    if (doubled) RegisterHook(out, [](const Tensor& grad) { return Mul(grad, 2); });
    const auto [sum, norm] = AddLayerNorm(x, out, {}, {});
    Backward(Sum(Mul(sum, Gelu(norm))));
    return ToDoubles(bias.grad());
  };
  std::vector<double> expected = bias_grad(false);
  for (double& value : expected)
    value *= 2;
  EXPECT_EQ(bias_grad(true), expected);
}

TEST_P(LayerTest, AttentionGradients) {
  const struct {
    std::int64_t heads, kv_heads, queries, keys;
    AttentionParams params;
  } kCases[] = {
      {2, 2, 5, 5, {.scale = 0}},
      {4, 2, 3, 3, {.scale = 0.3}},
      {2, 1, 2, 5, {.scale = 0}},
      {2, 1, 3, 4, {.scale = 0, .causal = false}},
      {2, 2, 6, 6, {.scale = 0, .sliding_window = 2}},
      {1, 1, 0, 3, {.scale = 0}},
  };
  for (const auto& c : kCases) {
    const auto attend = [&](const Inputs& x) {
      return ScaledDotProductAttention(x[0], x[1], x[2], c.params);
    };
    CheckGradients(device(), {.name = "attention",
                              .function = attend,
                              .inputs = {{{2, c.heads, c.queries, 3}},
                                         {{2, c.kv_heads, c.keys, 3}},
                                         {{2, c.kv_heads, c.keys, 3}}},
                              .operations = 64});
  }
}

TEST_P(LayerTest, AttentionWithDropoutGradients) {
  const AttentionParams params = {.scale = 0, .dropout_p = 0.4};
  CheckGradients(device(), {.name = "attention with dropout",
                            .function =
                                [&](const Inputs& x) {
                                  ManualSeed(17);
                                  return ScaledDotProductAttention(x[0], x[1], x[2], params);
                                },
                            .inputs = {{{2, 2, 4, 3}}, {{2, 2, 4, 3}}, {{2, 2, 4, 3}}},
                            .operations = 64});
}

TEST_P(LayerTest, PackedAttentionGradients) {
  for (const std::int64_t kv_heads : {1, 2}) {
    CheckGradients(device(), {.name = "packed attention",
                              .function =
                                  [&](const Inputs& x) {
                                    return PackedAttention(x[0], 2, kv_heads, {.scale = 0});
                                  },
                              .inputs = {{{2, 4, (2 + 2 * kv_heads) * 3}}},
                              .operations = 64});
  }
}

TEST_P(LayerTest, PackedAttentionIsAttentionOnItsParts) {
  const Tensor qkv = Doubles({2, 5, (4 + 2 * 2) * 3});
  const std::vector<Tensor> parts = Split(qkv, {4 * 3, 2 * 3, 2 * 3}, 2);
  const auto heads = [](const Tensor& x, std::int64_t count) {
    return Transpose(Reshape(x, {2, 5, count, 3}), 1, 2);
  };
  const Tensor expected = ScaledDotProductAttention(heads(parts[0], 4), heads(parts[1], 2),
                                                    heads(parts[2], 2), {.scale = 0});
  ExpectClose(PackedAttention(qkv, 4, 2, {.scale = 0}),
              ToDoubles(Reshape(Transpose(expected, 1, 2), {2, 5, 12})), {.operations = 32});
}

TEST_P(LayerTest, AttentionIsTheSoftmaxOfItsScores) {
  const Tensor q = Doubles({2, 4, 3, 5});
  const Tensor k = Doubles({2, 2, 6, 5});
  const Tensor v = Doubles({2, 2, 6, 5});
  const auto repeat = [](const Tensor& x) {
    return Reshape(Expand(Unsqueeze(x, 2), {2, 2, 2, 6, 5}), {2, 4, 6, 5});
  };
  const Tensor scores = Matmul(q, Transpose(repeat(k), 2, 3)) / std::sqrt(5.0);
  // Query i of 3 sees keys up to i + 3 of 6.
  const Tensor position = Unsqueeze(Arange(3, 6, 1, DataType::kInt64, device()), 1);
  const Tensor hidden = Gt(Arange(0, 6, 1, DataType::kInt64, device()), position);
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor weights = Softmax(MaskedFill(scores, hidden, -infinity), -1);
  ExpectClose(ScaledDotProductAttention(q, k, v, {.scale = 0}),
              ToDoubles(Matmul(weights, repeat(v))), {.operations = 64, .scale = 4});
}

TEST_P(LayerTest, RotaryGradients) {
  const Tensor angles = Uniform({3, 2}, 0, 6, DataType::kFloat64, device());
  for (const bool interleaved : {false, true}) {
    CheckGradients(device(), {.name = "Rotary",
                              .function =
                                  [&](const Inputs& x) {
                                    return Rotary(x[0], Cos(angles), Sin(angles), interleaved);
                                  },
                              .inputs = {{{2, 2, 3, 4}}},
                              .operations = 16});
  }
}

TEST_P(LayerTest, CrossEntropyGradients) {
  for (const DataType dtype : {DataType::kInt64, DataType::kInt32}) {
    const Tensor targets = Ids({2, 3}, {0, 4, -100, 2, 2, 1}, dtype);
    for (const Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
      CheckGradients(
          device(),
          {.name = "CrossEntropy",
           .function = [&](const Inputs& x) { return CrossEntropy(x[0], targets, reduction); },
           .inputs = {{{2, 3, 5}}},
           .operations = 32});
    }
    CheckGradients(
        device(),
        {.name = "LinearCrossEntropy",
         .function = [&](const Inputs& x) { return LinearCrossEntropy(x[0], x[1], targets, 0.2); },
         .inputs = {{{2, 3, 4}}, {{5, 4}}},
         .operations = 64,
         .stores_between = true});
  }
}

TEST_P(LayerTest, LinearCrossEntropyIsTheCrossEntropyOfALinearLayer) {
  const Tensor hidden = Doubles({7, 3});
  const Tensor weight = Doubles({6, 3});
  const Tensor targets = Ids({7}, {0, 5, 9, 3, 3, 1, 2});
  const Tensor expected =
      CrossEntropy(Linear(hidden, weight), targets, Reduction::kSum, 9) * (1.0 / 6);
  ExpectClose(LinearCrossEntropy(hidden, weight, targets, 1.0 / 6, 9), ToDoubles(expected),
              {.operations = 32});
}

TEST_P(LayerTest, AMeanOverNoTargetsIsZero) {
  const Tensor logits = Doubles({2, 3});
  logits.set_requires_grad();
  const Tensor loss = CrossEntropy(logits, Ids({2}, {-100, -100}));
  Backward(loss);
  ExpectEqual(loss, {0});
  ExpectEqual(logits.grad(), std::vector<double>(6, 0));
}

TEST_P(LayerTest, TargetsOutOfRangeAreErrorsOnTheHost) {
  if (!device().is_cpu()) GTEST_SKIP() << "only the CPU can tell at once";
  EXPECT_THROW(CrossEntropy(Doubles({2, 3}), Ids({2}, {0, 3})), Error);
  EXPECT_THROW(CrossEntropy(Doubles({2, 3}), Ids({2}, {0, -1})), Error);
  EXPECT_THROW(Embedding(Doubles({2, 3}), Ids({1}, {2})), Error);
}

TEST_P(LayerTest, BadArgumentsAreErrors) {
  const Tensor integers = Ids({2, 2}, {1, 2, 3, 4});
  EXPECT_THROW(Linear(Doubles({2, 3}), Doubles({4, 2})), Error);
  EXPECT_THROW(Linear(Doubles({2, 3}), Doubles({3})), Error);
  EXPECT_THROW(Linear(Doubles({2, 3}), Doubles({4, 3}), Doubles({3})), Error);
  EXPECT_THROW(Linear(integers, integers), Error);
  EXPECT_THROW(Matmul(Doubles({2, 3}), Doubles({2, 3})), Error);
  EXPECT_THROW(Matmul(Doubles({}), Doubles({1})), Error);
  EXPECT_THROW(Matmul(Doubles({2, 1, 1}), Doubles({3, 1, 1})), Error);
  EXPECT_THROW(Embedding(Doubles({2, 3}), Doubles({2})), Error);
  EXPECT_THROW(Embedding(Doubles({2}), Ids({1}, {0})), Error);
  EXPECT_THROW(LayerNorm(Doubles({2, 3}), Doubles({2}), Tensor()), Error);
  EXPECT_THROW(LayerNorm(Doubles({}), Tensor(), Tensor()), Error);
  EXPECT_THROW(RmsNorm(Doubles({2, 3}), Doubles({1, 3})), Error);
  EXPECT_THROW(RmsNorm(integers, Tensor()), Error);
  const Tensor heads = Doubles({1, 3, 2, 4});
  EXPECT_THROW(ScaledDotProductAttention(heads, Doubles({1, 2, 2, 4}), heads, {}), Error);
  EXPECT_THROW(ScaledDotProductAttention(heads, heads, heads, {.dropout_p = 1}), Error);
  EXPECT_THROW(PackedAttention(Doubles({1, 2, 10}), 2, 1, {}), Error);
  EXPECT_THROW(PackedAttention(Doubles({1, 2, 12}), 3, 2, {}), Error);

  // Cumulative lengths: their type, their shape, and a batch of one with as many queries as keys.
  const auto lengths = [](const Dims& shape, DataType dtype) {
    return Zeros(shape, dtype, device());
  };
  const Tensor good = lengths({3}, DataType::kInt32);
  const Tensor pair = Doubles({2, 1, 3, 4}), longer = Doubles({1, 1, 5, 4});
  const Tensor one = Doubles({1, 1, 3, 4});
  EXPECT_NO_THROW(ScaledDotProductAttention(one, one, one, {}, good));
  EXPECT_THROW(ScaledDotProductAttention(one, one, one, {}, lengths({3}, DataType::kInt64)), Error);
  EXPECT_THROW(ScaledDotProductAttention(one, one, one, {}, lengths({1, 3}, DataType::kInt32)),
               Error);
  EXPECT_THROW(ScaledDotProductAttention(one, one, one, {}, lengths({0}, DataType::kInt32)), Error);
  EXPECT_THROW(ScaledDotProductAttention(pair, pair, pair, {}, good), Error);
  EXPECT_THROW(ScaledDotProductAttention(one, longer, longer, {}, good), Error);
  EXPECT_THROW(PackedAttention(Doubles({2, 2, 12}), 1, 1, {}, good), Error);
  EXPECT_THROW(Rotary(heads, Doubles({2, 3}), Doubles({2, 3})), Error);
  EXPECT_THROW(CrossEntropy(Doubles({2, 3}), Ids({3}, {0, 0, 0})), Error);
  EXPECT_THROW(CrossEntropy(Doubles({2, 3}), Doubles({2})), Error);
  EXPECT_THROW(LinearCrossEntropy(Doubles({2, 3}), Doubles({4, 2}), Ids({2}, {0, 0}), 1), Error);
}

}  // namespace
}  // namespace infini_train
