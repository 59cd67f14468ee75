// Attention and AttentionBackward of several samples in one sequence.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "infini_train/core/device/graph.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"
#include "tests/ops/attention_fixture.h"

namespace infini_train {
namespace {

using test::MakeTensor;
using test::ToDoubles;

using Lengths = std::vector<double>;

class PackedAttentionTest : public test::AttentionFixture {
 protected:
  struct Heads {
    std::int64_t h = 2, k = 1, d = 8;
  };

  static test::AttentionCase Packed(Heads heads, std::int64_t t, Lengths lengths,
                                    AttentionParams params = Causal(),
                                    DataType dtype = DataType::kFloat32, bool packed = false,
                                    std::int64_t gap = 3) {
    return {1, heads.h, heads.k, t, t, heads.d, dtype, params, packed, gap, std::move(lengths)};
  }
};

// Positions [begin, end) of values [heads, positions, size].
std::vector<double> Part(const std::vector<double>& values, std::int64_t heads, std::int64_t size,
                         std::int64_t begin, std::int64_t end) {
  const std::int64_t row = static_cast<std::int64_t>(values.size()) / heads;
  std::vector<double> part;
  for (std::int64_t h = 0; h < heads; ++h) {
    part.insert(part.end(), values.begin() + h * row + begin * size,
                values.begin() + h * row + end * size);
  }
  return part;
}

TEST_P(PackedAttentionTest, TypesMasksAndLayouts) {
  const Lengths lengths = {0, 5, 5, 30, 31, 64, 64};
  for (const DataType dtype : test::kFloatingTypes) {
    for (const bool packed : {false, true}) {
      Check(Packed({4, 2, 16}, 70, lengths, Causal(), dtype, packed));
      Check(Packed({4, 2, 16}, 70, lengths, Full(), dtype, packed));
      Check(Packed({3, 3, 24}, 70, lengths, Causal(0.2, 7), dtype, packed));
      Check(Packed({2, 1, 9}, 70, lengths, Full(0.5, 7), dtype, packed));
    }
  }
}

TEST_P(PackedAttentionTest, OneSample) {
  for (const std::int64_t t : {1, 3, 5, 40, 130}) {
    const auto end = static_cast<double>(t);
    Check(Packed({}, t, {0, end}));
    Check(Packed({}, t, {0, end}, Full(0.3, 20)));
    Check(Packed({}, t, {0, std::floor(end / 2)}));
    Check(Packed({}, t, {0, 0, end, end}));
  }
}

TEST_P(PackedAttentionTest, NoSample) {
  for (const std::int64_t t : {2, 50}) {
    Check(Packed({}, t, {0}));
    Check(Packed({}, t, {0, 0, 0}, Full()));
  }
  Check(Packed({}, 0, {0, 0}));
}

// Around the sizes of tiles; and more samples than a tile has rows.
TEST_P(PackedAttentionTest, Lengths) {
  Lengths ones, growing = {0};
  for (int i = 0; i <= 130; ++i)
    ones.push_back(i);
  for (int i = 1; growing.back() + i <= 171; ++i)
    growing.push_back(growing.back() + i);
  for (const AttentionParams& params : {Causal(), Full(), Causal(0.3, 12), Full(0.3, 12)}) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64}) {
      Check(Packed({}, 135, ones, params, dtype));
      Check(Packed({}, 175, growing, params, dtype));
      Check(Packed({}, 259, {0, 63, 128, 193, 256, 257}, params, dtype));
      Check(Packed({}, 200, {0, 1, 96, 97, 199}, params, dtype));
      Check(Packed({}, 4, {0, 1, 3}, params, dtype));
    }
  }
}

TEST_P(PackedAttentionTest, HeadSizes) {
  for (const std::int64_t d : {1, 7, 16, 33, 64, 80, 128, 256}) {
    Check(Packed({4, 2, d}, 75, {0, 20, 52, 70}, Causal(1.0 / 16)));
    Check(Packed({2, 1, d}, 75, {0, 20, 52, 70}, Causal(1.0 / 16), DataType::kFloat64));
  }
}

// What the fused kernels of libraries take: half types, heads of whole vectors.
TEST_P(PackedAttentionTest, HalfTypesInWholeVectors) {
  const Lengths lengths = {0, 40, 40, 41, 110, 140};
  for (const std::int64_t d : {64, 80, 128, 256}) {
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
      Check(Packed({4, 2, d}, 150, lengths, Causal(scale), dtype, true, 8));
      Check(Packed({2, 2, d}, 150, lengths, Causal(scale, 30), dtype, false, 8));
    }
    Check(Packed({2, 1, d}, 150, lengths, Full(scale), DataType::kBFloat16, true, 8));
  }
}

// Enough keys that the gradients are summed in several parts.
TEST_P(PackedAttentionTest, ManyKeys) {
  Check(Packed({2, 1, 4}, 1300, {0, 3, 700, 701, 1100}));
  Check(Packed({1, 1, 4}, 1100, {0, 600, 1000}, Causal(0.3, 100), DataType::kBFloat16));
}

TEST_P(PackedAttentionTest, Dropout) {
  for (const DataType dtype : test::kFloatingTypes) {
    Check(Packed({}, 70, {0, 11, 11, 60}, Causal(0.3, 0, 0.25), dtype));
    Check(Packed({}, 70, {0, 11, 11, 60}, Full(0.3, 20, 0.9), dtype));
    Check(Packed({}, 3, {0, 1, 3}, Causal(0.3, 0, 0.5), dtype));
  }
}

TEST_P(PackedAttentionTest, EqualsEachSampleAlone) {
  constexpr double kRelative = 1e-6;
  const Lengths lengths = {0, 37, 37, 38, 165, 230};
  for (const AttentionParams& params : {Causal(), Full(), Causal(0.3, 25)}) {
    const test::AttentionCase all = Packed({4, 2, 16}, 240, lengths, params);
    SCOPED_TRACE(all.ToString());
    const Inputs x(all);
    const Result together = Run(all, x);
    for (std::size_t i = 1; i < lengths.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(lengths[i - 1]);
      const auto end = static_cast<std::int64_t>(lengths[i]);
      const test::AttentionCase alone = Packed({4, 2, 16}, end - begin, {}, params);
      Inputs own(alone);
      own.q = Part(x.q, 4, 16, begin, end);
      own.k = Part(x.k, 2, 16, begin, end);
      own.v = Part(x.v, 2, 16, begin, end);
      own.grad_out = Part(x.grad_out, 4, 16, begin, end);
      const Result expected = Run(alone, own);
      const auto compare = [&](const Tensor& actual, const Tensor& reference, std::int64_t heads,
                               std::int64_t size) {
        const std::vector<double> found = Part(ToDoubles(actual), heads, size, begin, end);
        const std::vector<double> wanted = ToDoubles(reference);
        ASSERT_EQ(found.size(), wanted.size());
        double largest = 0;
        for (const double value : wanted)
          largest = std::max(largest, std::abs(value));
        for (std::size_t j = 0; j < found.size(); ++j)
          ASSERT_NEAR(found[j], wanted[j], kRelative * largest) << "sample " << i << " at " << j;
      };
      compare(together.out, expected.out, 4, 16);
      compare(together.lse, expected.lse, 4, 1);
      compare(together.grads.q, expected.grads.q, 4, 16);
      compare(together.grads.k, expected.grads.k, 2, 16);
      compare(together.grads.v, expected.grads.v, 2, 16);
    }
  }
}

TEST_P(PackedAttentionTest, PositionsOfNoSampleGiveZero) {
  for (const DataType dtype : test::kFloatingTypes) {
    const test::AttentionCase c = Packed({}, 90, {0, 30, 70}, Causal(), dtype);
    const Result result = Run(c, Inputs(c));
    for (const double value : Part(ToDoubles(result.lse), c.h, 1, 70, 90))
      EXPECT_EQ(value, -std::numeric_limits<double>::infinity());
    const auto expect_zero = [&](const Tensor& x) {
      for (const double value : Part(ToDoubles(x), x.size(1), c.d, 70, 90))
        EXPECT_EQ(value, 0.0);
    };
    expect_zero(result.out);
    expect_zero(result.grads.q);
    expect_zero(result.grads.k);
    expect_zero(result.grads.v);
  }
}

// What is not finite in a sample stays there, in spite of weights that are 0.
TEST_P(PackedAttentionTest, ASampleDoesNotSeeWhatIsNotFiniteInAnother) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNotFinite[] = {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity};
  struct Case {
    Heads heads;
    std::int64_t tokens;
    Lengths lengths;
    std::size_t spoiled;  // a sample
  };
  const std::vector<Case> cases = {
      {{2, 1, 8}, 160, {0, 30, 50, 51, 130, 150}, 1},   // inside of tiles
      {{2, 1, 8}, 160, {0, 30, 50, 51, 130, 150}, 2},   // of one token
      {{2, 1, 8}, 160, {0, 30, 50, 51, 130, 150}, 3},   // in several tiles
      {{4, 2, 8}, 200, {0, 10, 140, 150, 190}, 1},      // in several turns of a block
      {{2, 1, 80}, 160, {0, 30, 50, 51, 130, 150}, 3},  // heads of several slices
      {{1, 1, 8}, 4, {0, 1, 3, 4}, 1}};                 // too few queries for tiles
  std::vector<double> Inputs::*const kInputs[] = {&Inputs::q, &Inputs::k, &Inputs::v,
                                                  &Inputs::grad_out};
  const AttentionParams params[] = {Causal(), Full(), Causal(0.3, 12, 0.25)};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& test = cases[i];
    const auto begin = static_cast<std::int64_t>(test.lengths[test.spoiled]);
    const auto end = static_cast<std::int64_t>(test.lengths[test.spoiled + 1]);
    for (std::size_t input = 0; input < std::size(kInputs); ++input) {
      const DataType dtype = input % 2 == 0 ? DataType::kFloat32 : DataType::kBFloat16;
      const test::AttentionCase c =
          Packed(test.heads, test.tokens, test.lengths, params[(i + input) % 3], dtype);
      SCOPED_TRACE(c.ToString() + ", sample " + std::to_string(test.spoiled) + ", input " +
                   std::to_string(input));
      const Inputs clean(c);
      Inputs spoiled = clean;
      std::vector<double>& values = spoiled.*kInputs[input];
      for (std::size_t x = 0; x < values.size(); ++x) {
        const std::int64_t position = static_cast<std::int64_t>(x) / c.d % c.t;
        if (position >= begin && position < end) values[x] = kNotFinite[x % 3];
      }
      const Result expected = Run(c, clean);
      const Result found = Run(c, spoiled);
      const auto others = [&](const Tensor& x, std::int64_t size) {
        std::vector<double> part = Part(ToDoubles(x), x.size(1), size, 0, begin);
        const std::vector<double> behind = Part(ToDoubles(x), x.size(1), size, end, c.t);
        part.insert(part.end(), behind.begin(), behind.end());
        return part;
      };
      EXPECT_EQ(others(found.out, c.d), others(expected.out, c.d));
      EXPECT_EQ(others(found.lse, 1), others(expected.lse, 1));
      EXPECT_EQ(others(found.grads.q, c.d), others(expected.grads.q, c.d));
      EXPECT_EQ(others(found.grads.k, c.d), others(expected.grads.k, c.d));
      EXPECT_EQ(others(found.grads.v, c.d), others(expected.grads.v, c.d));
      const std::vector<double> own = Part(ToDoubles(found.grads.q), c.h, c.d, begin, end);
      EXPECT_FALSE(std::all_of(own.begin(), own.end(), [](double x) { return std::isfinite(x); }))
          << "of the sample itself";
    }
  }
}

TEST_P(PackedAttentionTest, SameBitsTwice) {
  for (const DataType dtype : test::kFloatingTypes) {
    const test::AttentionCase c =
        Packed({4, 2, 16}, 150, {0, 3, 90, 145}, Causal(0.3, 0, 0.1), dtype);
    const Inputs x(c);
    ExpectSameBits(Run(c, x), Run(c, x));
  }
}

// The lengths stay on the device: a captured graph follows them.
TEST_P(PackedAttentionTest, ReplaysFollowTheLengths) {
  if (!DeviceGraph::IsSupported(device())) GTEST_SKIP() << "the device has no graphs";
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    const test::AttentionCase first = Packed({2, 1, 64}, 100, {0, 1, 2}, Causal(), dtype, true, 8);
    const test::AttentionCase second =
        Packed({2, 1, 64}, 100, {0, 61, 100}, Causal(), dtype, true, 8);
    const Inputs x(first);
    Result replayed = Prepare(first, x.q, x.k, x.v, x.grad_out);
    DeviceGraph graph(device(), [&] { Enqueue(first, replayed); });
    graph.Launch();
    ExpectSameBits(replayed, Run(first, x));
    Call<op::Copy>(replayed.lengths, MakeTensor(device(), DataType::kInt32, {3}, second.lengths));
    graph.Launch();
    ExpectSameBits(replayed, Run(second, x));
  }
}

TEST_P(PackedAttentionTest, BadLengthsAreAnErrorOrStayInside) {
  const std::vector<std::pair<Lengths, std::string>> cases = {
      {{1, 40}, "got 1 as the first"},
      {{-3, 40}, "got -3 as the first"},
      {{0, 30, 20, 40}, "got 20 after 30 at 2"},
      {{0, 30, -7, 40}, "got -7 after 30 at 2"},
      {{0, 30, 41}, "up to the 40 positions, got 41 after 30 at 2"},
      {{0, 2147483647, -2147483648.0, 2147483647}, "got 2147483647 after 0 at 1"},
      {{0, -2147483648.0}, "got -2147483648 after 0 at 1"}};
  for (const auto& [lengths, message] : cases) {
    for (const AttentionParams& params : {Causal(), Full(), Causal(0.3, 5), Full(0.3, 5)}) {
      for (const std::int64_t size : {8, 64}) {
        const test::AttentionCase c =
            Packed({2, 1, size}, 40, lengths, params, DataType::kBFloat16, true, 8);
        SCOPED_TRACE(c.ToString());
        if (HasKernel(device().type(), OpId::kAttention) && device().type() != DeviceType::kCPU) {
          // The values are anything; a kernel that left the tensors would fault.
          const Result result = Run(c, Inputs(c));
          test::ExpectGapsUntouched(result.lse);
          ToDoubles(result.grads.k);
          continue;
        }
        try {
          Run(c, Inputs(c));
          ADD_FAILURE() << "expected an Error with: " << message;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
        }
      }
    }
  }
}

TEST_P(PackedAttentionTest, GradientsMatchDifferences) {
  for (const AttentionParams& params : {Causal(0.8), Full(0.8), Causal(0.8, 3, 0.4)})
    CheckDifferences(Packed({2, 1, 3}, 9, {0, 3, 3, 7}, params, DataType::kFloat64));
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(PackedAttentionTest);

}  // namespace
}  // namespace infini_train
