#include "infini_train/nn/token_graph.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/launch_overlap.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"
#include "tests/nn/tiny_transformers.h"

namespace infini_train::nn {
namespace {

using test::ExpectClose;
using test::ExpectSameBits;
using test::ToDoubles;

class TokenGraphTest : public DeviceTestWith<TransformerConfig> {
 protected:
  static std::unique_ptr<Transformer> Make(TransformerConfig config,
                                           DataType dtype = DataType::kFloat32) {
    config.initializer_range = 0.2;
    auto model = std::make_unique<Transformer>(config, TensorOptions{device(), dtype});
    Generator generator(1);
    model->InitializeParameters(generator);
    model->Train(false);
    return model;
  }

  static Tensor Ids(std::int64_t batch, std::int64_t tokens) {
    Generator generator(99);
    return RandomInt({batch, tokens}, 0, 31, DataType::kInt64, device(), &generator);
  }

  /// The prompt but for its last token is in the cache.
  static void Begin(Transformer& model, KeyValueCache& cache, const Tensor& prompt) {
    model.HiddenStates(Contiguous(Slice(prompt, 1, 0, prompt.size(1) - 1)), {.cache = &cache});
  }
};

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE_WITH(TokenGraphTest,
                                           ::testing::Values(TinyGpt2(), TinyQwen3(),
                                                             TinyMixtral()),
                                           [](const auto& info) { return NameOfKind(info.index); });

TEST_P(TokenGraphTest, GivesWhatTheWholeSequenceGives) {
  const NoGrad no_grad;
  auto model = Make(value());
  for (const std::int64_t batch : {1, 3}) {
    Tensor sequence = Ids(batch, 4);
    KeyValueCache cache(value().num_hidden_layers, 12, batch);
    Begin(*model, cache, sequence);
    TokenGraph steps(*model, cache, Contiguous(Slice(sequence, 1, 3)));
    for (std::int64_t length = 4; length <= 12; ++length) {
      SCOPED_TRACE(::testing::Message() << batch << " sequences of " << length);
      steps.Step();
      EXPECT_EQ(cache.length(), length);
      const Tensor whole = Select((*model)(sequence), 1, length - 1);
      ExpectClose(steps.logits(), ToDoubles(whole), {.operations = 256, .scale = 4});
      const Tensor next = ArgMax(whole, 1, true);
      test::ExpectEqual(steps.tokens(), ToDoubles(next));
      sequence = Concat({sequence, next}, 1);
    }
    EXPECT_ERROR(steps.Step(), "expected at most 12 positions");
    const bool decodes = model->CanDecode(Ids(batch, 1), {.cache = &cache});
    EXPECT_EQ(decodes, value().position_embedding == PositionEmbedding::kRotary &&
                           value().num_local_experts == 0);
    EXPECT_EQ(steps.captured(), DeviceGraph::IsSupported(device()));
  }
}

TEST_P(TokenGraphTest, BeginsWithNothing) {
  const NoGrad no_grad;
  auto model = Make(value());
  Tensor sequence = Ids(2, 1);
  KeyValueCache cache(value().num_hidden_layers, 6, 2);
  TokenGraph steps(*model, cache, sequence);
  for (std::int64_t length = 1; length <= 6; ++length) {
    steps.Step();
    const Tensor whole = Select((*model)(sequence), 1, length - 1);
    ExpectClose(steps.logits(), ToDoubles(whole), {.operations = 256, .scale = 4});
    sequence = Concat({sequence, ArgMax(whole, 1, true)}, 1);
  }
}

// Kernels that begin before the one in front of them has ended give what they give in turn.
TEST_P(TokenGraphTest, OverlapChangesNothing) {
  const NoGrad no_grad;
  auto model = Make(value(), DataType::kBFloat16);
  const Tensor ids = Ids(1, 3);
  const auto generate = [&] {
    KeyValueCache cache(value().num_hidden_layers, 16);
    Begin(*model, cache, ids);
    TokenGraph steps(*model, cache, Contiguous(Slice(ids, 1, 2)));
    std::vector<Tensor> logits;
    for (int i = 0; i < 14; ++i) {
      steps.Step();
      logits.push_back(Clone(steps.logits()));
    }
    return Concat(logits, 0);
  };
  const Tensor overlapped = generate();
  LaunchOverlap::SetEnabled(false);
  const Tensor in_turn = generate();
  LaunchOverlap::SetEnabled(true);
  ExpectSameBits(overlapped, in_turn);
}

// What is written to tokens() comes next, in replays too.
TEST_P(TokenGraphTest, GoesOnWithGivenTokens) {
  const NoGrad no_grad;
  auto model = Make(value());
  const Tensor ids = Ids(2, 9);
  KeyValueCache cache(value().num_hidden_layers, 9, 2);
  Begin(*model, cache, Contiguous(Slice(ids, 1, 0, 3)));
  TokenGraph steps(*model, cache, Contiguous(Slice(ids, 1, 2, 3)));
  const Tensor whole = (*model)(ids);
  for (std::int64_t i = 2; i < 9; ++i) {
    CopyInPlace(steps.tokens(), Slice(ids, 1, i, i + 1));
    steps.Step();
    ExpectClose(steps.logits(), ToDoubles(Select(whole, 1, i)), {.operations = 256, .scale = 4});
  }
}

// Sequences of different lengths in one cache, of which one begins anew between replays.
TEST_P(TokenGraphTest, EachSequenceHasItsLength) {
  const NoGrad no_grad;
  auto model = Make(value());
  std::vector<std::vector<std::int64_t>> sequences = {{3, 1, 4, 1, 5}, {9}, {2, 6, 5}};
  KeyValueCache cache(value().num_hidden_layers, 13, 3);
  const auto ids = [](const std::vector<std::int64_t>& tokens, const Dims& shape) {
    return To(Tensor::FromVector(tokens, shape), device());
  };
  const CachedPrompt prompts[] = {{2, 2}, {0, 4}};
  model->HiddenStates(ids({2, 6, 3, 1, 4, 1}, {1, 6}), {.cache = &cache, .prompts = prompts});
  EXPECT_THAT(cache.lengths(), ::testing::ElementsAre(4, 0, 2));
  TokenGraph steps(*model, cache, ids({5, 9, 5}, {3, 1}));
  for (int step = 0; step < 8; ++step) {
    if (step == 5) {
      cache.Clear(1);
      sequences[1] = {5, 3, 5, 8, 9};
      const CachedPrompt again[] = {{1, 4}};
      model->HiddenStates(ids({5, 3, 5, 8}, {1, 4}), {.cache = &cache, .prompts = again});
      CopyInPlace(steps.tokens(),
                  ids({sequences[0].back(), sequences[1].back(), sequences[2].back()}, {3, 1}));
    }
    steps.Step();
    const std::vector<std::int64_t> next = steps.tokens().ToVector<std::int64_t>();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "sequence " << i << ", step " << step);
      const auto row = static_cast<std::int64_t>(i);
      const auto length = static_cast<std::int64_t>(sequences[i].size());
      EXPECT_EQ(cache.lengths()[i], length);
      const Tensor whole = Select((*model)(ids(sequences[i], {1, length})), 1, length - 1);
      ExpectClose(Slice(steps.logits(), 0, row, row + 1), ToDoubles(whole),
                  {.operations = 256, .scale = 4});
      sequences[i].push_back(next[i]);
    }
  }
  EXPECT_EQ(steps.captured(), DeviceGraph::IsSupported(device()));
}

// Replays end where the buffers do, and begin again with larger ones.
TEST_P(TokenGraphTest, FollowsTheCacheIntoLargerBuffers) {
  const NoGrad no_grad;
  TransformerConfig config = value();
  config.max_position_embeddings = 600;
  config.num_hidden_layers = 1;
  auto model = Make(config);
  const std::int64_t room = [] {
    KeyValueCache cache(1, 600);
    cache.MakeRoom(1);
    return cache.room();
  }();
  ASSERT_LT(room, 600 - 4);
  const Tensor ids = Ids(1, room + 4);
  const Tensor whole = (*model)(ids);
  KeyValueCache cache(1, 600);
  model->HiddenStates(Contiguous(Slice(ids, 1, 0, 1)), {.cache = &cache});
  model->HiddenStates(Contiguous(Slice(ids, 1, 1, room - 4)), {.cache = &cache});
  EXPECT_EQ(cache.room(), room);
  TokenGraph steps(*model, cache, Contiguous(Slice(ids, 1, room - 4, room - 3)));
  for (std::int64_t i = room - 4; i < room + 4; ++i) {
    CopyInPlace(steps.tokens(), Slice(ids, 1, i, i + 1));
    steps.Step();
    EXPECT_EQ(cache.room(), i < room ? room : 600);
    EXPECT_EQ(steps.captured(),
              DeviceGraph::IsSupported(device()) && (i < room ? i >= room - 2 : i >= room + 2));
    ExpectClose(steps.logits(), ToDoubles(Select(whole, 1, i)), {.operations = 256, .scale = 4});
  }
}

// A replay goes on where the cache was cut.
TEST_P(TokenGraphTest, FollowsTheCache) {
  const NoGrad no_grad;
  auto model = Make(value());
  const Tensor ids = Ids(1, 5);
  KeyValueCache cache(value().num_hidden_layers, 10);
  Begin(*model, cache, ids);
  TokenGraph steps(*model, cache, Contiguous(Slice(ids, 1, 4)));
  std::vector<Tensor> logits;
  for (int i = 0; i < 6; ++i) {
    steps.Step();
    logits.push_back(Clone(steps.logits()));
  }
  cache.Truncate(4);
  CopyInPlace(steps.tokens(), Slice(ids, 1, 4));
  for (int i = 0; i < 6; ++i) {
    steps.Step();
    ExpectSameBits(steps.logits(), logits[static_cast<std::size_t>(i)]);
  }
}

// The angles of a float64 model are kept in float32, but the op takes them in its type.
TEST_P(TokenGraphTest, ComputesInFloat64) {
  const NoGrad no_grad;
  auto model = Make(value(), DataType::kFloat64);
  const Tensor ids = Ids(2, 5);
  KeyValueCache cache(value().num_hidden_layers, 5, 2);
  Begin(*model, cache, ids);
  TokenGraph steps(*model, cache, Contiguous(Slice(ids, 1, 4)));
  steps.Step();
  EXPECT_EQ(steps.logits().dtype(), DataType::kFloat64);
  ExpectClose(steps.logits(), ToDoubles(Select((*model)(ids), 1, 4)),
              {.operations = 256, .scale = 4});
}

TEST_P(TokenGraphTest, HalfPrecisionAndHooks) {
  const NoGrad no_grad;
  auto model = Make(value(), DataType::kBFloat16);
  const Tensor ids = Ids(1, 3);
  KeyValueCache cache(value().num_hidden_layers, 8), watched_cache(value().num_hidden_layers, 8);
  Begin(*model, cache, ids);
  Begin(*model, watched_cache, ids);
  const Tensor last = Contiguous(Slice(ids, 1, 2));
  TokenGraph steps(*model, cache, last);
  steps.Step();
  int calls = 0;
  for (const auto& [name, module] : model->NamedModules()) {
    module->RegisterForwardHook([&](Module&, const Tensor&, const Tensor&) {
      ++calls;
      return Tensor();
    });
  }
  EXPECT_FALSE(model->CanDecode(last, {.cache = &watched_cache}));
  TokenGraph watched(*model, watched_cache, last);
  watched.Step();
  EXPECT_GT(calls, 0);
  ExpectClose(steps.logits(), ToDoubles(watched.logits()),
              {.operations = 4, .scale = 4, .compute = DataType::kBFloat16});
}

}  // namespace
}  // namespace infini_train::nn
