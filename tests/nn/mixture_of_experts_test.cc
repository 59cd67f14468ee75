#include "infini_train/nn/mixture_of_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/nn/router_statistics.h"
#include "infini_train/nn/transformer.h"
#include "infini_train/ops/matmul_precision.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"
#include "tests/nn/tiny_transformers.h"

namespace infini_train::nn {
namespace {

using test::ExpectClose;
using test::ExpectSameBits;
using test::ToDoubles;

/// What tokens choose by the router's logits, computed on the host in float64.
struct HostRouting {
  HostRouting(const Tensor& logits, std::int64_t choices)
      : experts(logits.size(-1)), tokens(logits.numel() / logits.size(-1)) {
    const std::vector<double> values = ToDoubles(logits);
    weights.resize(values.size(), 0.0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto row = values.begin() + t * experts;
      const double largest = *std::max_element(row, row + experts);
      double total = 0;
      for (std::int64_t e = 0; e < experts; ++e)
        total += std::exp(row[e] - largest);
      std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
      for (std::int64_t e = 0; e < experts; ++e)
        probabilities.push_back(std::exp(row[e] - largest) / total);
      const auto probability = probabilities.end() - experts;
      double chosen = 0;
      for (std::int64_t j = 0; j < choices; ++j)
        chosen += probability[order[static_cast<std::size_t>(j)]];
      for (std::int64_t j = 0; j < choices; ++j) {
        const std::int64_t e = order[static_cast<std::size_t>(j)];
        weights[static_cast<std::size_t>(t * experts + e)] = probability[e] / chosen;
      }
    }
  }

  /// Adds what the tokens `counted` did to the columns of E experts.
  void Count(std::int64_t counted, std::vector<double>& load, std::vector<double>& sum) const {
    load.resize(static_cast<std::size_t>(experts), 0.0);
    sum.resize(static_cast<std::size_t>(experts), 0.0);
    for (std::int64_t t = 0; t < counted; ++t) {
      for (std::int64_t e = 0; e < experts; ++e) {
        const auto i = static_cast<std::size_t>(t * experts + e);
        load[static_cast<std::size_t>(e)] += weights[i] > 0 ? 1 : 0;
        sum[static_cast<std::size_t>(e)] += probabilities[i];
      }
    }
  }

  std::int64_t experts;
  std::int64_t tokens;
  std::vector<double> probabilities;  ///< [tokens, experts]
  std::vector<double> weights;        ///< [tokens, experts], 0 for those not chosen
};

TransformerConfig WithExperts(std::int64_t experts, std::int64_t choices) {
  TransformerConfig config = TinyMixtral();
  config.num_local_experts = experts;
  config.num_experts_per_tok = choices;
  return config;
}

class MixtureOfExpertsTest : public DeviceTest {
 protected:
  static Tensor Random(const Dims& shape, std::uint64_t seed) {
    Generator generator(seed);
    return Normal(shape, 0.0, 1.0, DataType::kFloat32, device(), &generator);
  }
  static std::unique_ptr<MixtureOfExperts> MakeLayer(const TransformerConfig& config) {
    auto layer = std::make_unique<MixtureOfExperts>(config, TensorOptions{device()});
    const NoGrad no_grad;
    std::uint64_t seed = 10;
    for (const auto& [name, parameter] : layer->NamedParameters())
      CopyInPlace(parameter, Random(parameter.shape(), seed++) * Scalar(0.4));
    return layer;
  }
  static std::unique_ptr<Transformer> MakeModel(TransformerConfig config) {
    config.initializer_range = 0.3;
    auto model = std::make_unique<Transformer>(config, TensorOptions{device()});
    Generator generator(1);
    model->InitializeParameters(generator);
    return model;
  }
  static Tensor Ids(std::int64_t batch, std::int64_t tokens) {
    Generator generator(99);
    return RandomInt({batch, tokens}, 0, 31, DataType::kInt64, device(), &generator);
  }
  /// The logits that each router of a model gives in a pass over ids.
  static std::vector<Tensor> RouterLogits(Transformer& model, const Tensor& ids) {
    std::vector<Tensor> logits;
    std::vector<std::pair<Module*, int>> hooks;
    for (const auto& [name, module] : model.NamedModules()) {
      if (!name.ends_with(".router")) continue;
      hooks.emplace_back(
          module, module->RegisterForwardHook([&](Module&, const Tensor&, const Tensor& output) {
            logits.push_back(output);
            return Tensor();
          }));
    }
    const NoGrad no_grad;
    model.HiddenStates(ids);
    for (const auto& [module, id] : hooks)
      module->RemoveHook(id);
    return logits;
  }
  /// Transformers' load_balancing_loss_func over the first `counted` tokens of each layer.
  static double ExpectedLoss(Transformer& model, const Tensor& ids, std::int64_t counted) {
    const TransformerConfig& config = model.config();
    std::vector<double> load, sum;
    for (const Tensor& logits : RouterLogits(model, ids))
      HostRouting(logits, config.num_experts_per_tok).Count(counted, load, sum);
    const auto rows = static_cast<double>(config.num_hidden_layers * counted);
    double loss = 0;
    for (std::size_t e = 0; e < load.size(); ++e)
      loss += load[e] / rows * sum[e] / rows;
    return loss * static_cast<double>(config.num_local_experts);
  }
  static double BalanceLoss(Transformer& model, const Tensor& ids, ForwardContext context) {
    RouterStatistics routers;
    context.routers = &routers;
    const NoGrad no_grad;
    model.HiddenStates(ids, context);
    return routers.LoadBalancingLoss().Item();
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(MixtureOfExpertsTest);

TEST_P(MixtureOfExpertsTest, IsTheWeightedSumOfTheChosenExperts) {
  const NoGrad no_grad;
  for (const auto& [experts, choices] : {std::pair{4, 2}, {8, 1}, {8, 2}, {4, 1}, {3, 3}, {1, 1}}) {
    SCOPED_TRACE(::testing::Message() << choices << " of " << experts);
    const TransformerConfig config = WithExperts(experts, choices);
    const auto layer = MakeLayer(config);
    const NamedTensors parameters = layer->NamedParameters();
    const Tensor x = Random({2, 7, config.hidden_size}, 3);
    const Tensor tokens = Reshape(x, {14, config.hidden_size});
    const HostRouting routing(infini_train::Linear(tokens, parameters[2].second), choices);
    Tensor expected = ZerosLike(tokens);
    for (int e = 0; e < experts; ++e) {
      std::vector<double> weights;
      for (std::int64_t t = 0; t < routing.tokens; ++t)
        weights.push_back(routing.weights[static_cast<std::size_t>(t * experts + e)]);
      const Tensor hidden =
          SwiGlu(infini_train::Linear(tokens, Select(parameters[0].second, 0, e)));
      const Tensor out = infini_train::Linear(hidden, Select(parameters[1].second, 0, e));
      expected = expected + out * test::MakeTensor(device(), DataType::kFloat32, {14, 1}, weights);
    }
    const Tensor out = (*layer)(x);
    EXPECT_EQ(out.shape(), x.shape());
    ExpectClose(Reshape(out, tokens.shape()), ToDoubles(expected),
                {.operations = 100, .scale = 2.0});
  }
}

TEST_P(MixtureOfExpertsTest, ParametersHaveTheirNames) {
  const TransformerConfig config = WithExperts(4, 2);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : MakeLayer(config)->NamedParameters())
    names.push_back(name + " " + parameter.shape().ToString());
  EXPECT_THAT(names,
              ::testing::ElementsAre("experts.c_fc.weight [4, 20, 24]",
                                     "experts.c_proj.weight [4, 24, 10]", "router.weight [4, 24]"));
}

TEST_P(MixtureOfExpertsTest, ALayerNotesWhatItsRouterDid) {
  const TransformerConfig config = WithExperts(8, 2);
  auto model = MakeModel(config);
  const Tensor ids = Ids(2, 9);
  RouterStatistics routers;
  {
    const NoGrad no_grad;
    model->HiddenStates(ids, {.routers = &routers});
  }
  const std::vector<Tensor> logits = RouterLogits(*model, ids);
  ASSERT_EQ(routers.layers().size(), logits.size());
  EXPECT_EQ(routers.Summary().shape(), Dims({2, 10}));
  const std::vector<double> summary = ToDoubles(routers.Summary());
  for (std::size_t l = 0; l < logits.size(); ++l) {
    const HostRouting routing(logits[l], 2);
    std::vector<double> load, sum;
    routing.Count(18, load, sum);
    test::ExpectEqual(routers.layers()[l].load, load);
    ExpectClose(routers.layers()[l].probability_sum, sum, {.operations = 40, .scale = 18});
    double entropy = 0;
    for (const double p : routing.probabilities)
      entropy -= p * std::log(p);
    EXPECT_NEAR(summary[10 * l + 8], entropy, 1e-5 * entropy);
    EXPECT_EQ(summary[10 * l + 9], 18);
  }
}

TEST_P(MixtureOfExpertsTest, TheLoadBalancingLossIsThatOfTransformers) {
  for (const auto& [experts, choices] : {std::pair{4, 2}, {8, 1}, {8, 2}}) {
    auto model = MakeModel(WithExperts(experts, choices));
    const Tensor ids = Ids(2, 9);
    const double expected = ExpectedLoss(*model, ids, 18);
    EXPECT_NEAR(BalanceLoss(*model, ids, {}), expected, 1e-6 * expected);
    EXPECT_GT(std::abs(expected - choices), 1e-3) << "balanced by chance";
  }
}

TEST_P(MixtureOfExpertsTest, PaddingIsNotCounted) {
  auto model = MakeModel(WithExperts(4, 2));
  const Tensor ids = Ids(1, 9);
  const double expected = ExpectedLoss(*model, ids, 6);
  const Tensor mask =
      test::MakeTensor(device(), DataType::kBool, {1, 9}, {1, 1, 1, 1, 1, 1, 0, 0, 0});
  EXPECT_NEAR(BalanceLoss(*model, ids, {.token_mask = mask}), expected, 1e-6 * expected);
  // What stands behind the last sample is padding.
  const PackedSamples samples = PackSamples({6, 0}, 9, device());
  EXPECT_NEAR(BalanceLoss(*model, ids, {.samples = samples}), expected, 1e-6 * expected);
  EXPECT_GT(std::abs(BalanceLoss(*model, ids, {}) - expected), 1e-4 * expected);
  EXPECT_ERROR(BalanceLoss(*model, Ids(1, 8), {.token_mask = mask}),
               "token mask: expected [1, 8], got [1, 9]");
}

TEST_P(MixtureOfExpertsTest, TrainingAddsTheLoadBalancingLoss) {
  const NoGrad no_grad;
  const Tensor ids = Ids(2, 9);
  const Tensor targets = Ids(2, 9);
  TransformerConfig config = WithExperts(4, 2);
  auto model = MakeModel(config);
  const double balance = config.router_aux_loss_coef * BalanceLoss(*model, ids, {});
  model->Train(false);
  const double cross_entropy = model->Loss(ids, targets, 0.05).Item();
  model->Train(true);
  EXPECT_NEAR(model->Loss(ids, targets, 0.05).Item(), cross_entropy + balance, 1e-5);
  EXPECT_NEAR(model->Loss(ids, targets, 0.05, {.auxiliary_weight = 0.25}).Item(),
              cross_entropy + balance / 4, 1e-5);
  RouterStatistics routers;
  model->Loss(ids, targets, 0.05, {.routers = &routers});
  EXPECT_NEAR(config.router_aux_loss_coef * routers.LoadBalancingLoss().Item(), balance, 1e-6);

  config.output_router_logits = false;
  EXPECT_NEAR(MakeModel(config)->Loss(ids, targets, 0.05).Item(), cross_entropy, 1e-5);
}

TEST_P(MixtureOfExpertsTest, CheckpointedLayersNoteTheSame) {
  using Method = ActivationCheckpointing::Method;
  TransformerConfig config = WithExperts(4, 2);
  config.num_hidden_layers = 3;
  auto model = MakeModel(config);
  const auto train = [&](ActivationCheckpointing checkpointing) {
    model->set_activation_checkpointing(checkpointing);
    model->ZeroGrad();
    RouterStatistics routers;
    Backward(model->Loss(Ids(2, 9), Ids(2, 9), 0.05, {.routers = &routers}));
    std::vector<Tensor> results = {routers.Summary(), routers.LoadBalancingLoss().Detach()};
    for (const Tensor& parameter : model->Parameters())
      results.push_back(parameter.grad());
    return results;
  };
  const std::vector<Tensor> expected = train({Method::kNone, 1});
  EXPECT_EQ(expected[0].shape(), Dims({3, 6}));
  for (const auto& checkpointing :
       {ActivationCheckpointing{Method::kUniform, 2}, ActivationCheckpointing{Method::kBlock, 2}}) {
    const std::vector<Tensor> actual = train(checkpointing);
    for (std::size_t i = 0; i < expected.size(); ++i)
      ExpectSameBits(actual[i], expected[i]);
  }
}

TEST_P(MixtureOfExpertsTest, TheLoadBalancingLossAloneReachesEveryRouter) {
  auto model = MakeModel(WithExperts(4, 1));
  RouterStatistics routers;
  model->HiddenStates(Ids(2, 9), {.routers = &routers});
  Backward(routers.LoadBalancingLoss());
  for (const auto& [name, parameter] : model->NamedParameters()) {
    if (!name.ends_with("router.weight")) continue;
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_GT(Max(Abs(parameter.grad())).Item(), 1e-6) << name;
  }
}

TEST_P(MixtureOfExpertsTest, NoiseAtTheRouterIsForTraining) {
  const NoGrad no_grad;
  TransformerConfig config = WithExperts(4, 2);
  const Tensor x = Random({1, 5, config.hidden_size}, 3);
  const Tensor without = (*MakeLayer(config))(x);
  config.router_jitter_noise = 0.3;
  const auto layer = MakeLayer(config);
  const auto train = [&](std::uint64_t seed) {
    ManualSeed(seed);
    return (*layer)(x);
  };
  ExpectSameBits(train(7), train(7));
  EXPECT_GT(Max(Abs(train(7) - train(8))).Item(), 0.0);
  EXPECT_GT(Max(Abs(train(7) - without)).Item(), 0.0);
  layer->Train(false);
  ExpectSameBits(train(7), without);
}

TEST_P(MixtureOfExpertsTest, TheRouterIsFloat32UnderAutocast) {
  auto model = MakeModel(WithExperts(4, 2));
  const Autocast autocast(DataType::kBFloat16);
  for (const Tensor& logits : RouterLogits(*model, Ids(2, 9)))
    EXPECT_EQ(logits.dtype(), DataType::kFloat32);
  const Tensor loss = model->Loss(Ids(2, 9), Ids(2, 9), 0.05);
  EXPECT_EQ(loss.dtype(), DataType::kFloat32);
  Backward(loss);
  for (const auto& [name, parameter] : model->NamedParameters()) {
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_EQ(parameter.grad().dtype(), DataType::kFloat32) << name;
  }
}

TEST_P(MixtureOfExpertsTest, Fp8DoesNotReachExperts) {
  auto model = MakeModel(WithExperts(4, 2));
  const MatmulPrecision before = GetMatmulPrecision();
  SetMatmulPrecision(MatmulPrecision::kFp8);
  const Autocast autocast(DataType::kBFloat16);
  Backward(model->Loss(Ids(2, 8), Ids(2, 8), 0.05));
  SetMatmulPrecision(before);
  const NamedTensors state = model->Fp8State();
  EXPECT_FALSE(state.empty());
  for (const auto& [name, tensor] : state)
    EXPECT_THAT(name, ::testing::HasSubstr(".attn."));
}

TEST(RouterStatistics, WithoutExpertsThereAreNone) {
  RouterStatistics routers;
  Transformer model(TinyGpt2());
  Generator generator(1);
  model.InitializeParameters(generator);
  model.Loss(Zeros({1, 3}, DataType::kInt64), Zeros({1, 3}, DataType::kInt64), 1.0,
             {.routers = &routers});
  EXPECT_ERROR(routers.LoadBalancingLoss(), "expected those of a model with experts, got none");
  EXPECT_ERROR(routers.Summary(), "expected those of a model with experts, got none");
}

}  // namespace
}  // namespace infini_train::nn
