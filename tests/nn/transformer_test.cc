#include "infini_train/nn/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/nn/key_value_cache.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"
#include "tests/nn/tiny_transformers.h"

namespace infini_train::nn {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

class TransformerTest : public DeviceTestWith<TransformerConfig> {
 protected:
  static Tensor Ids(std::int64_t batch, std::int64_t tokens) {
    Generator generator(99);
    return RandomInt({batch, tokens}, 0, 31, DataType::kInt64, device(), &generator);
  }

  /// An initialised model with weights large enough that everything matters.
  static std::unique_ptr<Transformer> Make(TransformerConfig config) {
    config.initializer_range = 0.2;
    auto model = std::make_unique<Transformer>(config, TensorOptions{device()});
    Generator generator(1);
    model->InitializeParameters(generator);
    return model;
  }

  static std::vector<Tensor> Gradients(Transformer& model, ActivationCheckpointing checkpointing) {
    model.set_activation_checkpointing(checkpointing);
    model.ZeroGrad();
    ManualSeed(5);
    Backward(model.Loss(Ids(2, 9), Ids(2, 9), 0.1));
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : model.Parameters())
      gradients.push_back(parameter.grad());
    return gradients;
  }
};

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE_WITH(TransformerTest,
                                           ::testing::Values(TinyGpt2(), TinyQwen3(),
                                                             TinyMixtral()),
                                           [](const auto& info) { return NameOfKind(info.index); });

TEST_P(TransformerTest, GivesLogitsOfEveryPosition) {
  auto model = Make(value());
  const Tensor logits = (*model)(Ids(2, 7));
  EXPECT_EQ(logits.shape(), Dims({2, 7, 31}));
  EXPECT_EQ(logits.dtype(), DataType::kFloat32);
  EXPECT_EQ(model->HiddenStates(Ids(2, 7)).shape(), Dims({2, 7, 24}));
}

TEST_P(TransformerTest, ALaterTokenDoesNotChangeEarlierLogits) {
  auto model = Make(value());
  const NoGrad no_grad;
  const Tensor ids = Ids(1, 8);
  const Tensor changed = Clone(ids);
  FillInPlace(Slice(changed, 1, 5, 6), 3);
  const Tensor a = (*model)(ids);
  const Tensor b = (*model)(changed);
  if (value().num_local_experts == 0) {
    test::ExpectSameBits(Contiguous(Slice(a, 1, 0, 5)), Contiguous(Slice(b, 1, 0, 5)));
  } else {
    // Products of groups of other sizes may be rounded otherwise.
    EXPECT_LT(Max(Abs(Slice(a, 1, 0, 5) - Slice(b, 1, 0, 5))).Item(), 2e-5);
  }
  EXPECT_GT(Max(Abs(Slice(a, 1, 5) - Slice(b, 1, 5))).Item(), 0.0);
}

TEST_P(TransformerTest, LossIsTheScaledSumOfTheCrossEntropies) {
  auto model = Make(value());
  model->Train(false);
  const Tensor ids = Ids(2, 6);
  const Tensor targets = Clone(Ids(2, 6));
  FillInPlace(Slice(targets, 1, 2, 4), kDefaultIgnoreIndex);
  const double expected = CrossEntropy((*model)(ids), targets, Reduction::kSum).Item() / 8;
  EXPECT_NEAR(model->Loss(ids, targets, 1.0 / 8).Item(), expected, 1e-5 * expected);
}

TEST_P(TransformerTest, RefusesWhatDoesNotFit) {
  auto model = Make(value());
  EXPECT_NO_THROW((*model)(Ids(1, 16)));
  EXPECT_ERROR((*model)(Ids(1, 17)),
               "expected at most 16 positions (max_position_embeddings), got 17");
  EXPECT_ERROR((*model)(Reshape(Ids(1, 4), {4})), "expected token ids [batch, sequence], got [4]");
  if (!device().is_cpu()) return;  // Only the CPU looks at ids at once.
  EXPECT_ERROR((*model)(Tensor::FromVector<std::int64_t>({0, 31}, {1, 2})), "31");
  EXPECT_ERROR((*model)(Tensor::FromVector<std::int64_t>({0, -2}, {1, 2})), "-2");
}

TEST_P(TransformerTest, ACacheGivesTheLogitsOfTheWholeSequence) {
  auto model = Make(value());
  const NoGrad no_grad;
  const Tensor ids = Ids(2, 12);
  const Tensor whole = (*model)(ids);
  KeyValueCache cache(value().num_hidden_layers, 12, 2);
  // A prompt, single tokens, and several at once.
  const std::int64_t ends[] = {5, 6, 7, 10, 12};
  for (const std::int64_t end : ends) {
    const std::int64_t begin = cache.length();
    const Tensor part = (*model)(Contiguous(Slice(ids, 1, begin, end)), {&cache, 0});
    EXPECT_EQ(cache.length(), end);
    EXPECT_THAT(
        part.ToVector<float>(),
        Pointwise(FloatNear(2e-5f), Contiguous(Slice(whole, 1, begin, end)).ToVector<float>()))
        << "positions " << begin << " to " << end;
  }
  EXPECT_ERROR((*model)(Ids(2, 1), {&cache, 0}), "expected at most 12 positions, got 13");

  cache.Truncate(4);
  const Tensor again = (*model)(Contiguous(Slice(ids, 1, 4, 8)), {&cache, 0});
  EXPECT_THAT(again.ToVector<float>(),
              Pointwise(FloatNear(2e-5f), Contiguous(Slice(whole, 1, 4, 8)).ToVector<float>()));
  EXPECT_ERROR((*model)(Ids(1, 1), {&cache, 0}), "expected token ids of 2 sequences, got [1, 1]");
  EXPECT_ERROR(cache.Truncate(9), "expected a length in [0, 8], got 9");
}

TEST_P(TransformerTest, ASlidingWindowIsTheSameWithACache) {
  TransformerConfig config = value();
  config.sliding_window = 3;
  auto model = Make(config);
  const NoGrad no_grad;
  const Tensor ids = Ids(1, 9);
  const Tensor whole = (*model)(ids);
  KeyValueCache cache(config.num_hidden_layers, 9);
  for (std::int64_t i = 0; i < 9; ++i) {
    const Tensor one = (*model)(Contiguous(Slice(ids, 1, i, i + 1)), {&cache, 0});
    EXPECT_THAT(
        one.ToVector<float>(),
        Pointwise(FloatNear(2e-5f), Contiguous(Slice(whole, 1, i, i + 1)).ToVector<float>()));
  }
}

TEST_P(TransformerTest, ActivationCheckpointingChangesNoGradient) {
  using Method = ActivationCheckpointing::Method;
  for (const double dropout : {0.0, 0.3}) {
    auto model = Make(value());
    model->SetDropout(dropout);
    const std::vector<Tensor> expected = Gradients(*model, {Method::kNone, 1});
    for (const auto& checkpointing :
         {ActivationCheckpointing{Method::kUniform, 1},
          ActivationCheckpointing{Method::kUniform, 2},
          ActivationCheckpointing{Method::kUniform, 9}, ActivationCheckpointing{Method::kBlock, 1},
          ActivationCheckpointing{Method::kBlock, 9},
          ActivationCheckpointing{Method::kSelective, 1}}) {
      const std::vector<Tensor> actual = Gradients(*model, checkpointing);
      for (std::size_t i = 0; i < expected.size(); ++i)
        test::ExpectSameBits(actual[i], expected[i]);
    }
  }
}

TEST_P(TransformerTest, ActivationCheckpointingOfNoLayersIsRefused) {
  auto model = Make(value());
  EXPECT_ERROR(model->set_activation_checkpointing({ActivationCheckpointing::Method::kUniform, 0}),
               "expected a positive number of layers, got 0");
}

TEST_P(TransformerTest, DropoutIsOffInEvaluationAndReachesEveryPlace) {
  auto model = Make(value());
  const NoGrad no_grad;
  const Tensor ids = Ids(1, 8);
  const Tensor without = (*model)(ids);
  model->SetDropout(0.5);
  EXPECT_EQ(model->config().embedding_dropout, 0.5);
  EXPECT_EQ(model->config().attention_dropout, 0.5);
  EXPECT_EQ(model->config().residual_dropout, 0.5);
  EXPECT_GT(Max(Abs((*model)(ids)-without)).Item(), 0.0);
  model->Train(false);
  test::ExpectSameBits((*model)(ids), without);
  EXPECT_ERROR(model->SetDropout(1.0), "expected 0 <= p < 1, got 1");
}

std::int64_t CountParameters(const Transformer& model) {
  std::int64_t count = 0;
  for (const Tensor& parameter : model.Parameters())
    count += parameter.numel();
  return count;
}

TEST_P(TransformerTest, NumParametersCountsEveryParameterOnce) {
  std::vector<TransformerConfig> configs(9, value());
  configs[1].tie_word_embeddings ^= true;
  configs[2].attention_bias ^= true;
  configs[3].attention_output_bias ^= true;
  configs[4].mlp_bias ^= true;
  configs[5].query_key_norm ^= true;
  configs[6].activation = Activation::kSwiGlu;
  configs[7].norm = NormType::kRmsNorm;
  configs[8].num_key_value_heads = 1;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    if (configs[i].num_local_experts > 0) configs[i].mlp_bias = false;
    EXPECT_EQ(configs[i].NumParameters(), CountParameters(Transformer(configs[i]))) << i;
  }
}

TEST(TransformerConfig, NumParametersOfGpt2) {
  TransformerConfig config;
  config.vocab_size = 50257;
  config.max_position_embeddings = 1024;
  config.hidden_size = 768;
  config.num_hidden_layers = config.num_attention_heads = config.num_key_value_heads = 12;
  config.head_dim = 64;
  config.intermediate_size = 3072;
  EXPECT_EQ(config.NumParameters(), 124'439'808);
  // Six per parameter of matrix products, the head included, and 6 T C a layer for attention.
  EXPECT_EQ(config.TrainingFlopsPerToken(1024),
            6.0 * (12 * 12 * 768 * 768 + 50257 * 768) + 6.0 * 12 * 768 * 1024);
}

TEST(TransformerConfig, NumParametersOfMixtral8x7B) {
  TransformerConfig config;
  config.vocab_size = 32000;
  config.max_position_embeddings = 32768;
  config.hidden_size = 4096;
  config.num_hidden_layers = config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 14336;
  config.norm = NormType::kRmsNorm;
  config.activation = Activation::kSwiGlu;
  config.position_embedding = PositionEmbedding::kRotary;
  config.attention_bias = config.attention_output_bias = config.mlp_bias = false;
  config.tie_word_embeddings = false;
  config.num_local_experts = 8;
  config.num_experts_per_tok = 2;
  EXPECT_EQ(config.NumParameters(), 46'702'792'704);
  // A token is in the products of two experts, and of the router.
  const double block =
      4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096 + 2 * 3 * 4096.0 * 14336 + 4096 * 8;
  EXPECT_EQ(config.TrainingFlopsPerToken(1024),
            6.0 * (32 * block + 32000.0 * 4096) + 6.0 * 32 * 4096 * 1024);
}

TEST(TransformerConfig, ValidationOfExpertsNamesEveryField) {
  TransformerConfig config = TinyMixtral();
  config.num_experts_per_tok = 5;
  config.mlp_bias = true;
  config.router_aux_loss_coef = -1;
  config.router_jitter_noise = 1;
  EXPECT_THAT([&] { Transformer{config}; },
              ::testing::ThrowsMessage<Error>(::testing::AllOf(
                  ::testing::HasSubstr("num_experts_per_tok: expected 1 to num_local_experts (4), "
                                       "got 5"),
                  ::testing::HasSubstr("without biases"),
                  ::testing::HasSubstr("router_aux_loss_coef: expected 0 or more, got -1"),
                  ::testing::HasSubstr("router_jitter_noise: expected 0 <= noise < 1, got 1"))));
  config = TinyMixtral();
  config.num_local_experts = -1;
  EXPECT_ERROR(Transformer{config}, "num_local_experts: expected 0 or a positive 31-bit number");
}

TEST(TransformerConfig, ValidationNamesEveryField) {
  TransformerConfig config = TinyGpt2();
  config.vocab_size = 0;
  config.num_key_value_heads = 3;
  config.norm_eps = 0;
  config.residual_dropout = 1;
  EXPECT_THAT([&] { Transformer{config}; },
              ::testing::ThrowsMessage<Error>(::testing::AllOf(
                  ::testing::HasSubstr("vocab_size: expected a positive 31-bit number, got 0"),
                  ::testing::HasSubstr("num_attention_heads: expected a multiple of "
                                       "num_key_value_heads (3), got 4"),
                  ::testing::HasSubstr("norm_eps"), ::testing::HasSubstr("residual_dropout"))));
}

double StandardDeviation(const Tensor& x) {
  const double mean = Mean(x).Item();
  return std::sqrt(Mean(Square(x - mean)).Item());
}

class InitializeParametersTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(InitializeParametersTest);

TEST_P(InitializeParametersTest, HasGpt2sDistributions) {
  TransformerConfig config = TinyGpt2();
  config.hidden_size = 128;
  config.head_dim = 32;
  config.intermediate_size = 512;
  config.vocab_size = 500;
  config.num_hidden_layers = 2;
  const Transformer model(config, {device()});
  Generator generator(3);
  model.InitializeParameters(generator);
  const NoGrad no_grad;
  for (const auto& [name, parameter] : model.NamedParameters()) {
    SCOPED_TRACE(name);
    if (name.ends_with(".bias")) {
      EXPECT_EQ(Max(Abs(parameter)).Item(), 0.0);
    } else if (parameter.rank() == 1) {
      EXPECT_EQ(Max(Abs(parameter - 1)).Item(), 0.0);
    } else {
      // The deviation of n normal numbers is itself known to 1 / √(2 n): five of those.
      const double expected = name.ends_with("c_proj.weight") ? 0.02 / 2 : 0.02;
      const auto count = static_cast<double>(parameter.numel());
      EXPECT_NEAR(StandardDeviation(parameter), expected, 5 * expected / std::sqrt(2 * count));
      EXPECT_NEAR(Mean(parameter).Item(), 0.0, 5 * expected / std::sqrt(count));
    }
  }
}

TEST_P(InitializeParametersTest, DependsOnTheSeedAlone) {
  const auto parameters = [](std::uint64_t seed, Device device) {
    const Transformer model(TinyQwen3(), {device});
    Generator generator(seed);
    model.InitializeParameters(generator);
    return model.Parameters();
  };
  const std::vector<Tensor> a = parameters(4, device());
  const std::vector<Tensor> b = parameters(4, device());
  const std::vector<Tensor> c = parameters(5, device());
  const std::vector<Tensor> host = parameters(4, Device());
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    test::ExpectSameBits(a[i], b[i]);
    // The logarithms and cosines of two devices may differ in their last bits.
    test::ExpectClose(a[i], test::ToDoubles(host[i]), {.operations = 16, .scale = 0.1});
  }
  EXPECT_NE(a[0].ToVector<float>(), c[0].ToVector<float>());
}

TEST(Transformer, ParameterNamesAreGpt2s) {
  TransformerConfig config = TinyGpt2();
  config.num_hidden_layers = 1;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : Transformer(config).NamedParameters())
    names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre(
                         "wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias",
                         "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight",
                         "h.0.attn.c_proj.bias", "h.0.ln_2.weight", "h.0.ln_2.bias",
                         "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.weight",
                         "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"));
}

}  // namespace
}  // namespace infini_train::nn
