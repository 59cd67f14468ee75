#include "infini_train/nn/key_value_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"

namespace infini_train::nn {
namespace {

using test::ExpectSameBits;
using ::testing::ElementsAre;

constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kHeadSize = 3;

class KeyValueCacheTest : public DeviceTest {
 protected:
  static Tensor Random(std::int64_t batch, std::int64_t tokens) {
    static Generator generator(7);
    return Normal({batch, kHeads, tokens, kHeadSize}, 0.0, 1.0, DataType::kFloat32, device(),
                  &generator);
  }

  static std::pair<Tensor, Tensor>& Buffers(KeyValueCache& cache, std::int64_t layer = 0) {
    return cache.Buffers(layer, {cache.batch_size(), kHeads, 0, kHeadSize}, DataType::kFloat32,
                         device());
  }

  /// The first positions of a sequence.
  static Tensor Held(const Tensor& buffer, std::int64_t sequence, std::int64_t length) {
    return Contiguous(Slice(Slice(buffer, 0, sequence, sequence + 1), 2, 0, length));
  }
};

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(KeyValueCacheTest);

TEST_P(KeyValueCacheTest, KeepsPromptsOfDifferentLengths) {
  const NoGrad no_grad;
  KeyValueCache cache(2, 8, 3);
  const CachedPrompt prompts[] = {{2, 4}, {0, 1}};
  cache.CheckPrompts(prompts);
  std::vector<Tensor> keys, values;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    keys.push_back(Random(1, 5));
    values.push_back(Random(1, 5));
    cache.Fill(layer, keys.back(), values.back(), prompts);
  }
  cache.Advance(prompts);
  EXPECT_THAT(cache.lengths(), ElementsAre(1, 0, 4));
  EXPECT_EQ(cache.length(), 4);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const auto& [kept_keys, kept_values] = Buffers(cache, layer);
    const auto l = static_cast<std::size_t>(layer);
    ExpectSameBits(Held(kept_keys, 2, 4), Contiguous(Slice(keys[l], 2, 0, 4)));
    ExpectSameBits(Held(kept_values, 0, 1), Contiguous(Slice(values[l], 2, 4, 5)));
  }
}

// Replays read the lengths where they are: the tensor stays, whatever changes them.
TEST_P(KeyValueCacheTest, TheDeviceKnowsTheLengths) {
  const NoGrad no_grad;
  KeyValueCache cache(1, 20, 2);
  const Tensor lengths = cache.device_lengths(device());
  const auto expect = [&](std::int32_t first, std::int32_t second) {
    EXPECT_THAT(cache.lengths(), ElementsAre(first, second));
    EXPECT_THAT(lengths.ToVector<std::int32_t>(), ElementsAre(first, second));
    EXPECT_TRUE(cache.device_lengths(device()).IsSameAs(lengths));
  };
  expect(0, 0);
  const CachedPrompt prompts[] = {{1, 3}};
  cache.Advance(prompts);
  expect(0, 3);
  cache.Advance(1);
  expect(1, 4);
  cache.Clear(1);
  expect(1, 0);
  cache.Advance(2);
  expect(3, 2);
  EXPECT_ERROR(cache.Truncate(3), "expected a length in [0, 2], got 3");
  cache.Truncate(1);
  expect(1, 1);
}

TEST_P(KeyValueCacheTest, GrowsWithTheLongestSequence) {
  const NoGrad no_grad;
  constexpr std::int64_t kCapacity = 5000;
  KeyValueCache cache(1, kCapacity, 2);
  EXPECT_EQ(cache.room(), 0);
  const Tensor all = Random(2, 1300);
  std::int64_t room = 0, growths = 0;
  for (std::int64_t begin = 0; begin < 1300; begin += 100) {
    const Tensor part = Contiguous(Slice(all, 2, begin, begin + 100));
    const auto [keys, values] = cache.Append(0, part, part);
    cache.Advance(100);
    growths += cache.room() != room ? 1 : 0;
    room = cache.room();
    EXPECT_GE(room, cache.length());
    EXPECT_LE(room, 2 * cache.length() + 512);
    EXPECT_EQ(Buffers(cache).first.size(2), room);
    ExpectSameBits(Contiguous(keys), Contiguous(Slice(all, 2, 0, begin + 100)));
    ExpectSameBits(Contiguous(values), Contiguous(Slice(all, 2, 0, begin + 100)));
  }
  EXPECT_LE(growths, 3);
  cache.MakeRoom(4000);
  EXPECT_LE(cache.room(), kCapacity);
  ExpectSameBits(Held(Buffers(cache).second, 1, 1300), Contiguous(Slice(all, 0, 1, 2)));
  EXPECT_ERROR(cache.MakeRoom(5001), "expected at most 5000 positions, got 5001");

  KeyValueCache small(1, 30);
  small.MakeRoom(1);
  EXPECT_EQ(small.room(), 30);
}

TEST_P(KeyValueCacheTest, GoesOnWithSomeOfItsSequences) {
  const NoGrad no_grad;
  KeyValueCache cache(1, 10, 4);
  const CachedPrompt prompts[] = {{0, 3}, {1, 2}, {3, 5}};
  const Tensor keys = Random(1, 10), values = Random(1, 10);
  cache.Fill(0, keys, values, prompts);
  cache.Advance(prompts);
  cache.device_lengths(device());
  cache.Keep(std::vector<std::int64_t>{3, 2, 0});
  EXPECT_EQ(cache.batch_size(), 3);
  EXPECT_THAT(cache.lengths(), ElementsAre(5, 0, 3));
  EXPECT_THAT(cache.device_lengths(device()).ToVector<std::int32_t>(), ElementsAre(5, 0, 3));
  EXPECT_EQ(Buffers(cache).first.shape(), Dims({3, kHeads, 10, kHeadSize}));
  ExpectSameBits(Held(Buffers(cache).first, 0, 5), Contiguous(Slice(keys, 2, 5, 10)));
  ExpectSameBits(Held(Buffers(cache).second, 2, 3), Contiguous(Slice(values, 2, 0, 3)));
  EXPECT_ERROR(cache.Keep(std::vector<std::int64_t>{3}), "expected a sequence below 3, got 3");
  EXPECT_ERROR(cache.Keep({}), "expected sequences to keep, got none");
}

TEST_P(KeyValueCacheTest, RefusesWhatDoesNotFit) {
  const NoGrad no_grad;
  EXPECT_ERROR(KeyValueCache(1, 0),
               "expected positive sizes, got 1 layers, 0 positions, 1 sequences");
  EXPECT_ERROR(KeyValueCache(1, 4, 0), "0 sequences");
  KeyValueCache cache(1, 10, 2);
  const auto check = [&cache](std::vector<CachedPrompt> prompts) { cache.CheckPrompts(prompts); };
  EXPECT_ERROR(check({{2, 1}}), "for 2 sequences, got 1 tokens for sequence 2");
  EXPECT_ERROR(check({{-1, 1}}), "for sequence -1");
  EXPECT_ERROR(check({{0, 0}}), "got 0 tokens for sequence 0");
  EXPECT_ERROR(check({{1, 3}, {1, 2}}), "sequence 1 holds 2 positions");
  const CachedPrompt prompts[] = {{1, 3}};
  cache.Fill(0, Random(1, 3), Random(1, 3), prompts);
  cache.Advance(prompts);
  EXPECT_ERROR(check({{1, 1}}), "sequence 1 holds 3 positions");
  EXPECT_ERROR(cache.Append(0, Random(2, 1), Random(2, 1)),
               "expected sequences of one length, got 0 to 3");
  EXPECT_ERROR(cache.Clear(2), "expected a sequence below 2, got 2");
  EXPECT_ERROR(cache.Buffers(1, {2, kHeads, 1, kHeadSize}, DataType::kFloat32, device()),
               "expected a layer below 1, got 1");
  EXPECT_ERROR(cache.Buffers(0, {2, 5, 1, kHeadSize}, DataType::kFloat32, device()),
               "expected keys and values float32 [2, 2, 1, 3], got float32 [2, 5, 1, 3]");
}

}  // namespace
}  // namespace infini_train::nn
