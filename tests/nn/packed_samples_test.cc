#include "infini_train/nn/packed_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/nn/key_value_cache.h"
#include "infini_train/nn/transformer.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"
#include "tests/nn/tiny_transformers.h"

namespace infini_train::nn {
namespace {

class PackedSamplesTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(PackedSamplesTest);

TEST_P(PackedSamplesTest, CountPositionsFromTheStartOfEach) {
  const PackedSamples samples = PackSamples({3, 0, 4}, 9, device());
  EXPECT_EQ(samples.cumulative_lengths.ToVector<std::int32_t>(),
            (std::vector<std::int32_t>{0, 3, 3, 7}));
  EXPECT_EQ(samples.positions.ToVector<std::int64_t>(),
            (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(samples.max_length, 4);
  EXPECT_EQ(samples.cumulative_lengths.device(), device());
  EXPECT_EQ(samples.positions.device(), device());
}

TEST_P(PackedSamplesTest, MayBeNone) {
  const PackedSamples samples = PackSamples({}, 2, device());
  EXPECT_EQ(samples.cumulative_lengths.ToVector<std::int32_t>(), std::vector<std::int32_t>{0});
  EXPECT_EQ(samples.positions.ToVector<std::int64_t>(), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(samples.max_length, 0);
}

TEST_P(PackedSamplesTest, MustFit) {
  EXPECT_ERROR(PackSamples({3, 5}, 7, device()),
               "expected a sample 1 of 0 to 4 tokens, which of 7 are left, got 5");
  EXPECT_ERROR(PackSamples({-1}, 7, device()), "got -1");
  EXPECT_ERROR(PackSamples({}, -1, device()), "got -1");
  EXPECT_ERROR(PackSamples({}, std::int64_t{1} << 31, device()), "got 2147483648");
}

class PackedTransformerTest : public DeviceTestWith<TransformerConfig> {
 protected:
  static constexpr std::int64_t kTokens = 24;
  static const std::vector<std::int64_t>& Lengths() {
    static const std::vector<std::int64_t> lengths = {5, 1, 0, 9, 6};
    return lengths;
  }

  static Tensor Ids(std::uint64_t seed) {
    Generator generator(seed);
    return RandomInt({1, kTokens}, 0, 31, DataType::kInt64, device(), &generator);
  }

  static std::unique_ptr<Transformer> Make(TransformerConfig config) {
    config.initializer_range = 0.2;
    auto model = std::make_unique<Transformer>(config, TensorOptions{device()});
    Generator generator(1);
    model->InitializeParameters(generator);
    return model;
  }

  static ForwardContext Packed() { return {.samples = PackSamples(Lengths(), kTokens, device())}; }

  /// Calls `body(begin, end)` for each sample that is not empty.
  template <typename Body>
  static void ForEachSample(const Body& body) {
    std::int64_t begin = 0;
    for (const std::int64_t length : Lengths()) {
      if (length > 0) body(begin, begin + length);
      begin += length;
    }
  }

  static Tensor Part(const Tensor& x, std::int64_t begin, std::int64_t end) {
    return Contiguous(Slice(x, 1, begin, end));
  }

  /// Within 1e-6 of the largest value.
  static void ExpectNear(const Tensor& actual, const Tensor& expected) {
    ASSERT_EQ(actual.shape(), expected.shape());
    const std::vector<double> found = test::ToDoubles(actual);
    const std::vector<double> wanted = test::ToDoubles(expected);
    double largest = 0;
    for (const double value : wanted)
      largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < found.size(); ++i)
      // Sums over the rows of all samples at once are in another order.
      ASSERT_NEAR(found[i], wanted[i], 3e-6 * largest) << "at " << i;
  }
};

/// The load-balancing loss of samples together is not that of each.
TransformerConfig MixtralOfCrossEntropy() {
  TransformerConfig config = TinyMixtral();
  config.output_router_logits = false;
  return config;
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE_WITH(PackedTransformerTest,
                                           ::testing::Values(TinyGpt2(), TinyQwen3(),
                                                             MixtralOfCrossEntropy()),
                                           [](const auto& info) { return NameOfKind(info.index); });

TEST_P(PackedTransformerTest, LogitsAreThoseOfEachSampleAlone) {
  auto model = Make(value());
  const NoGrad no_grad;
  const Tensor ids = Ids(7);
  const Tensor logits = (*model)(ids, Packed());
  ForEachSample([&](std::int64_t begin, std::int64_t end) {
    SCOPED_TRACE(begin);
    ExpectNear(Part(logits, begin, end), (*model)(Part(ids, begin, end)));
  });
}

TEST_P(PackedTransformerTest, LossAndGradientsAreThoseOfEachSampleAlone) {
  const std::int64_t counted = std::accumulate(Lengths().begin(), Lengths().end(), std::int64_t{0});
  const double scale = 1.0 / static_cast<double>(counted);
  const Tensor ids = Ids(7);
  const Tensor targets = Ids(8);
  FillInPlace(Slice(targets, 1, counted, kTokens), kDefaultIgnoreIndex);
  using Method = ActivationCheckpointing::Method;
  for (const Method method : {Method::kNone, Method::kUniform}) {
    auto together = Make(value());
    auto alone = Make(value());
    together->set_activation_checkpointing({method, 1});
    const Tensor loss = together->Loss(ids, targets, scale, Packed());
    Backward(loss);
    double sum = 0;
    ForEachSample([&](std::int64_t begin, std::int64_t end) {
      const Tensor part = alone->Loss(Part(ids, begin, end), Part(targets, begin, end), scale);
      Backward(part);
      sum += part.Item();
    });
    EXPECT_NEAR(loss.Item(), sum, 1e-6 * sum);
    const NamedTensors parameters = together->NamedParameters();
    const NamedTensors others = alone->NamedParameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      SCOPED_TRACE(parameters[i].first);
      ExpectNear(parameters[i].second.grad(), others[i].second.grad());
    }
  }
}

// As many positions as samples need, however many there are.
TEST_P(PackedTransformerTest, PositionsOfSamplesCountForTheLimit) {
  TransformerConfig config = value();
  config.max_position_embeddings = 9;
  auto model = Make(config);
  const NoGrad no_grad;
  EXPECT_EQ((*model)(Ids(7), Packed()).shape(), Dims({1, kTokens, config.vocab_size}));
  EXPECT_ERROR((*model)(Ids(7), {.samples = PackSamples({10}, kTokens, device())}),
               "expected at most 9 positions (max_position_embeddings), got 10");
}

TEST_P(PackedTransformerTest, NeedTheirIdsAndNoCache) {
  auto model = Make(value());
  const NoGrad no_grad;
  ForwardContext context = Packed();
  EXPECT_ERROR((*model)(Part(Ids(7), 0, 10), context),
               "packed samples: expected token ids [1, 24], got [1, 10]");
  EXPECT_ERROR((*model)(Reshape(Ids(7), {2, 12}), context), "expected token ids [1, 24]");
  context.position_offset = 1;
  EXPECT_ERROR((*model)(Ids(7), context), "neither a key/value cache nor a position offset");
  KeyValueCache cache(2, kTokens);
  context = Packed();
  context.cache = &cache;
  EXPECT_ERROR((*model)(Ids(7), context), "neither a key/value cache nor a position offset");
}

}  // namespace
}  // namespace infini_train::nn
