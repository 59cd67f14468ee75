#include "infini_train/trainer/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/ops/op_recorder.h"
#include "tests/core/child_process.h"

namespace infini_train::trainer {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<float> kLogits = {1.0f, 3.0f, -kInfinity, 2.0f, 2.0f};

/// How often each token comes up over uniform numbers that are spread evenly.
std::vector<double> Frequencies(const SamplingOptions& options) {
  constexpr int kDraws = 20'000;
  std::vector<double> frequencies(kLogits.size());
  for (int i = 0; i < kDraws; ++i) {
    const std::int64_t token = SampleToken(kLogits, options, (i + 0.5) / kDraws);
    frequencies.at(static_cast<std::size_t>(token)) += 1.0 / kDraws;
  }
  return frequencies;
}

/// softmax(logits / temperature) over the tokens that are kept.
std::vector<double> Softmax(double temperature, const std::vector<bool>& kept) {
  std::vector<double> p(kLogits.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    p[i] = kept[i] ? std::exp(kLogits[i] / temperature) : 0.0;
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p)
    value /= total;
  return p;
}

const std::vector<bool> kAll(5, true);

void ExpectFrequencies(const SamplingOptions& options, const std::vector<double>& expected) {
  EXPECT_THAT(Frequencies(options), Pointwise(DoubleNear(1e-3), expected));
}

TEST(SampleToken, DrawsFromTheSoftmax) {
  ExpectFrequencies({}, Softmax(1.0, kAll));
}

TEST(SampleToken, TemperatureSharpensAndFlattens) {
  ExpectFrequencies({.temperature = 0.5}, Softmax(0.5, kAll));
  ExpectFrequencies({.temperature = 5.0}, Softmax(5.0, kAll));
  ExpectFrequencies({.temperature = 1e-300}, {0, 1, 0, 0, 0});
}

TEST(SampleToken, TemperatureZeroTakesTheFirstOfTheMostLikely) {
  ExpectFrequencies({.temperature = 0.0}, {0, 1, 0, 0, 0});
  EXPECT_EQ(SampleToken(std::vector<float>{1, 5, 5}, {.temperature = 0.0}, 0.99), 1);
}

TEST(SampleToken, TopKKeepsTheKMostLikely) {
  ExpectFrequencies({.top_k = 1}, {0, 1, 0, 0, 0});
  // Of equal ones the first.
  ExpectFrequencies({.top_k = 2}, Softmax(1.0, {false, true, false, true, false}));
  ExpectFrequencies({.top_k = 3}, Softmax(1.0, {false, true, false, true, true}));
  ExpectFrequencies({.top_k = 100}, Softmax(1.0, kAll));
}

TEST(SampleToken, TopPKeepsTheFewestThatReachIt) {
  // In order: 0.536, 0.197, 0.197, 0.073.
  ExpectFrequencies({.top_p = 0.5}, {0, 1, 0, 0, 0});
  ExpectFrequencies({.top_p = 0.6}, Softmax(1.0, {false, true, false, true, false}));
  ExpectFrequencies({.top_p = 0.9}, Softmax(1.0, {false, true, false, true, true}));
  ExpectFrequencies({.top_p = 0.95}, Softmax(1.0, kAll));
}

TEST(SampleToken, TopPCutsWhatTopKLeaves) {
  // Of the two that are left the first has 0.731.
  ExpectFrequencies({.top_k = 2, .top_p = 0.7}, {0, 1, 0, 0, 0});
}

TEST(SampleToken, TheEndsOfTheUniformRangeAreTokensToo) {
  EXPECT_EQ(SampleToken(kLogits, {}, 0.0), 1);
  EXPECT_EQ(SampleToken(kLogits, {}, std::nextafter(1.0, 0.0)), 0);
}

// Draws that end anywhere among many tokens, some of which are equally likely.
TEST(SampleToken, DrawsInFallingOrderOfAnyLength) {
  std::vector<float> logits(700);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = 0.01f * static_cast<float>(i * 37 % 350);
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return logits[a] > logits[b]; });
  for (const std::size_t top_k : {0, 1, 63, 64, 65, 300, 699, 700}) {
    std::vector<double> sums = {0.0};
    for (std::size_t i = 0; i < (top_k > 0 ? top_k : logits.size()); ++i)
      sums.push_back(sums.back() + std::exp(logits[static_cast<std::size_t>(order[i])]));
    for (std::size_t i = 0; i + 1 < sums.size(); i += 1 + i / 7) {
      // In the middle of what leads to a token.
      const double uniform = (sums[i] + sums[i + 1]) / 2 / sums.back();
      EXPECT_EQ(SampleToken(logits, {.top_k = static_cast<std::int64_t>(top_k)}, uniform), order[i])
          << top_k;
    }
  }
}

TEST(SampleToken, RefusesLogitsThatAreNoNumbers) {
  for (const std::vector<float>& logits : std::vector<std::vector<float>>{
           {0, kNan, 1}, {kNan, 0}, {kInfinity, 0}, {-kInfinity, -kInfinity}}) {
    for (const double temperature : {0.0, 1.0}) {
      EXPECT_ERROR(SampleToken(logits, {.temperature = temperature}, 0.5),
                   "expected finite logits");
    }
  }
  EXPECT_ERROR(SampleToken({}, {}, 0.5), "expected logits");
}

TEST(CheckSamplingOptions, SaysExpectedAndFound) {
  EXPECT_NO_THROW(CheckSamplingOptions({}));
  EXPECT_ERROR(CheckSamplingOptions({.temperature = -1}),
               "temperature: expected 0 or more, got -1");
  EXPECT_ERROR(CheckSamplingOptions({.temperature = std::nan("")}), "got nan");
  EXPECT_ERROR(CheckSamplingOptions({.top_k = -1}), "top_k: expected 0 or more, got -1");
  EXPECT_ERROR(CheckSamplingOptions({.top_p = 0}), "top_p: expected 0 < top_p <= 1, got 0");
  EXPECT_ERROR(CheckSamplingOptions({.top_p = 1.5}), "got 1.5");
}

class GenerateTest : public ::testing::Test {
 protected:
  GenerateTest() {
    models::ModelConfig config = models::FindPreset("gpt2-nano")->config;
    nn::TransformerConfig& t = config.transformer;
    t.vocab_size = 29;
    t.max_position_embeddings = 12;
    t.hidden_size = 16;
    t.num_hidden_layers = 2;
    t.num_attention_heads = t.num_key_value_heads = 2;
    t.head_dim = 8;
    t.intermediate_size = 32;
    t.initializer_range = 0.5;
    model_ = models::CreateModel(config, 5);
    model_.module->Train(false);
  }

  std::vector<std::int64_t> Run(const std::vector<std::int64_t>& prompt, std::int64_t count,
                                const SamplingOptions& options = {},
                                const std::vector<std::int64_t>& stop = {}) {
    std::vector<std::int64_t> tokens;
    Generator generator(options.seed);
    Generate(model_, prompt, start_token_, count, stop, options, generator,
             [&](std::int64_t token) {
               tokens.push_back(token);
               return true;
             });
    return tokens;
  }

  /// Prompts of several lengths in one batch, each with the generator that Run gives it.
  std::vector<std::vector<std::int64_t>> RunTogether(
      const std::vector<std::vector<std::int64_t>>& prompts, std::int64_t count,
      const SamplingOptions& options = {}, const std::vector<std::int64_t>& stop = {},
      std::int64_t batch_size = 8) {
    std::vector<Generator> generators(prompts.size(), Generator(options.seed));
    std::vector<Prompt> batch;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      batch.push_back({prompts[i], &generators[i]});
    std::vector<std::vector<std::int64_t>> texts(prompts.size());
    Generate(model_, batch, start_token_, count, stop, options, batch_size,
             [&](std::size_t i, std::int64_t token) {
               texts[i].push_back(token);
               return true;
             });
    return texts;
  }

  models::Model model_;
  std::int64_t start_token_ = 0;
};

TEST_F(GenerateTest, ATextIsInABatchWhatItIsAlone) {
  const std::vector<std::vector<std::int64_t>> prompts = {
      {1, 2}, {3}, {}, {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {1, 2, 3, 4, 5}, {1, 2}};
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0.0}, SamplingOptions{.seed = 3}}) {
    // The longest text is full from the start, the others become so.
    for (const std::int64_t batch_size : {8, 2}) {
      const auto texts = RunTogether(prompts, 15, options, {}, batch_size);
      for (std::size_t i = 0; i < prompts.size(); ++i)
        EXPECT_EQ(texts[i], Run(prompts[i], 15, options)) << i << " of " << batch_size;
    }
  }
}

/// The ops that the model calls, without those that these call.
std::vector<OpRecord> CallsOf(const std::function<void()>& body) {
  OpRecorder recorder{Device()};
  recorder.BeginStep(0);
  body();
  recorder.EndStep();
  std::vector<OpRecord> calls = recorder.Take().ops;
  std::erase_if(calls, [](const OpRecord& call) { return call.parent != -1; });
  return calls;
}

std::map<OpId, int> CountCalls(const std::function<void()>& body) {
  std::map<OpId, int> counts;
  for (const OpRecord& call : CallsOf(body))
    ++counts[call.op];
  return counts;
}

// One call of attention in each layer for all prompts, and one for a token of each text.
TEST_F(GenerateTest, TextsShareThePassesOfTheModel) {
  const std::vector<std::vector<std::int64_t>> prompts = {{1, 2}, {3}, {4, 5, 6, 7}, {1, 2, 3}};
  const int layers = static_cast<int>(model_.config.transformer.num_hidden_layers);
  const auto counts = CountCalls([&] { RunTogether(prompts, 5); });
  EXPECT_EQ(counts.at(OpId::kAttention), layers);
  EXPECT_EQ(counts.at(OpId::kCachedAttention), 5 * layers);
}

// Texts that have ended cost nothing for long.
TEST_F(GenerateTest, PlacesAreGivenUpWhenHalfOfThemAreEmpty) {
  std::vector<Generator> generators(5, Generator(3));
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < generators.size(); ++i)
    prompts.push_back({{1, static_cast<std::int64_t>(i)}, &generators[i]});
  std::vector<std::int64_t> text;
  const std::vector<OpRecord> calls = CallsOf([&] {
    Generate(model_, prompts, 0, 6, {}, {}, 5, [&](std::size_t i, std::int64_t token) {
      if (i == 3) text.push_back(token);
      // The texts end with 1, 2, 3 tokens, but for the fourth.
      return i == 3 || generators[i].state().offset < i + 1;
    });
  });
  EXPECT_EQ(text, Run({1, 3}, 6, {.seed = 3}));
  std::vector<std::string> sizes;
  for (const OpRecord& call : calls) {
    if (call.op == OpId::kCachedAttention && sizes.size() < 100)
      sizes.push_back(call.tensors.substr(0, call.tensors.find(',')));
  }
  std::vector<std::string> of_steps;
  for (std::size_t i = 0; i < sizes.size(); i += 2)
    of_steps.push_back(sizes[i]);
  EXPECT_THAT(of_steps, ::testing::ElementsAre("float32 [5", "float32 [5", "float32 [5",
                                               "float32 [2", "float32 [2", "float32 [1"));
}

// A text that has ended makes room for the next one at once.
TEST_F(GenerateTest, TextsFollowOneAnotherInTheirPlaces) {
  const std::vector<std::vector<std::int64_t>> prompts = {{1, 2}, {3}, {4, 5, 6}, {7}, {8, 9}};
  const SamplingOptions options{.seed = 3};
  const auto whole = RunTogether(prompts, 9, options);
  std::vector<std::int64_t> lengths;
  const std::vector<std::int64_t> stop = {whole[0][1], whole[2][3]};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto end = std::find_first_of(whole[i].begin(), whole[i].end(), stop.begin(), stop.end());
    lengths.push_back(std::min<std::int64_t>(end - whole[i].begin() + 1, 9));
  }
  std::vector<std::vector<std::int64_t>> cut;
  const auto counts = CountCalls([&] { cut = RunTogether(prompts, 9, options, stop, 2); });
  std::int64_t places[] = {0, 0};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<std::ptrdiff_t>(lengths[i]);
    EXPECT_EQ(cut[i], std::vector<std::int64_t>(whole[i].begin(), whole[i].begin() + length)) << i;
    *std::min_element(std::begin(places), std::end(places)) += lengths[i];
  }
  EXPECT_EQ(counts.at(OpId::kCachedAttention), 2 * std::max(places[0], places[1]));
}

TEST_F(GenerateTest, TextsOfABatchEndOneByOne) {
  const std::vector<std::vector<std::int64_t>> prompts = {{1, 2}, {3}, {4, 5, 6}};
  const SamplingOptions options{.seed = 3};
  const auto whole = RunTogether(prompts, 8, options);
  const std::vector<std::int64_t> stop = {whole[1][2], -1};
  const auto cut = RunTogether(prompts, 8, options, stop);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto end = std::find(whole[i].begin(), whole[i].end(), stop[0]);
    const auto past = end == whole[i].end() ? end : end + 1;
    EXPECT_EQ(cut[i], std::vector<std::int64_t>(whole[i].begin(), past)) << i;
  }
  EXPECT_EQ(cut[1].size(), 3u);
}

TEST_F(GenerateTest, ASeedGivesOneText) {
  const auto tokens = Run({1, 2}, 8, {.seed = 3});
  EXPECT_EQ(tokens.size(), 8u);
  EXPECT_EQ(Run({1, 2}, 8, {.seed = 3}), tokens);
  EXPECT_NE(Run({1, 2}, 8, {.seed = 4}), tokens);
}

TEST_F(GenerateTest, GoesOnWhenThePositionsAreFull) {
  const auto tokens = Run({1, 2, 3}, 40, {.temperature = 0.0});
  EXPECT_EQ(tokens.size(), 40u);
  // As long as everything fits, a longer budget changes nothing.
  const auto start = Run({1, 2, 3}, 9, {.temperature = 0.0});
  EXPECT_TRUE(std::equal(start.begin(), start.end(), tokens.begin()));
}

TEST_F(GenerateTest, AFullTextGoesOnFromItsNewerHalf) {
  std::vector<std::int64_t> prompt(12);
  std::iota(prompt.begin(), prompt.end(), 0);
  const auto tokens = Run(prompt, 2, {.temperature = 0.0});
  EXPECT_EQ(Run({7, 8, 9, 10, 11, tokens[0]}, 1, {.temperature = 0.0}).front(), tokens[1]);
}

TEST_F(GenerateTest, RefusesAPromptLongerThanThePositions) {
  EXPECT_ERROR(Run(std::vector<std::int64_t>(13, 1), 3),
               "prompt: expected at most 12 tokens, the model's positions, got 13");
}

TEST_F(GenerateTest, AnyBudgetWillDo) {
  const std::int64_t all = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(Run({1}, all, {.seed = 1}, Run({1}, 1, {.seed = 1})).size(), 1u);
  EXPECT_TRUE(Run({1}, 0).empty());
}

TEST_F(GenerateTest, StopsAfterAStopToken) {
  const auto tokens = Run({1, 2}, 8, {.seed = 3});
  const auto first = std::find(tokens.begin(), tokens.end(), tokens[2]);
  EXPECT_EQ(Run({1, 2}, 8, {.seed = 3}, {tokens[2], -1}),
            std::vector<std::int64_t>(tokens.begin(), first + 1));
}

TEST_F(GenerateTest, StopsWhenTheReceiverSaysSo) {
  int calls = 0;
  Generator generator(1);
  Generate(model_, {1}, 0, 8, {}, {}, generator, [&](std::int64_t) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
}

TEST_F(GenerateTest, AnEmptyPromptBeginsWithTheStartToken) {
  start_token_ = 7;
  EXPECT_EQ(Run({}, 4, {.seed = 2}), Run({7}, 4, {.seed = 2}));
  start_token_ = -1;
  EXPECT_ERROR(Run({}, 4), "expected a prompt");
}

}  // namespace
}  // namespace infini_train::trainer
