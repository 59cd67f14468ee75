// Attention and AttentionBackward against their definition in float64, and against differences.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/graph.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"
#include "tests/ops/attention_fixture.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using Case = test::AttentionCase;

class AttentionTest : public test::AttentionFixture {};

TEST_P(AttentionTest, TypesMasksAndLayouts) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const bool packed : {false, true}) {
      Check({2, 4, 2, 37, 37, 16, dtype, Causal(), packed});
      Check({2, 4, 2, 37, 37, 16, dtype, Full(), packed});
      Check({1, 3, 3, 130, 130, 24, dtype, Causal(0.2, 50), packed});
      Check({1, 2, 1, 70, 70, 9, dtype, Full(0.5, 20), packed});
    }
  }
}

TEST_P(AttentionTest, HeadSizes) {
  for (const std::int64_t d : {1, 2, 3, 7, 8, 12, 13, 16, 31, 32, 33, 64, 65, 80, 128, 200, 256}) {
    Check({1, 2, 1, 20, 20, d, DataType::kFloat32, Causal(1.0 / 16)});
    Check({1, 2, 1, 20, 20, d, DataType::kFloat64, Causal(1.0 / 16)});
    Check({1, 2, 1, 3, 40, d, DataType::kBFloat16, Causal(1.0 / 16)});
  }
}

// Around the sizes of tiles, more and fewer keys than queries.
TEST_P(AttentionTest, Lengths) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64}) {
    for (const std::int64_t t : {1, 2, 4, 5, 11, 12, 13, 31, 32, 33, 47, 48, 49, 95, 96, 97}) {
      for (const std::int64_t s : {1, 12, 31, 96, 97, 193, 200}) {
        Check({1, 1, 1, t, s, 8, dtype, Causal()});
        Check({1, 1, 1, t, s, 8, dtype, Causal(0.3, 17)});
        Check({1, 1, 1, t, s, 8, dtype, Full()});
      }
    }
  }
}

// What the fused kernels of libraries take: half types, heads of whole vectors.
TEST_P(AttentionTest, HalfTypesInWholeVectors) {
  constexpr DataType kType = DataType::kBFloat16;
  for (const std::int64_t d : {64, 80, 96, 128, 256}) {
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    Check({2, 2, 1, 40, 40, d, kType, Causal(scale), true, 8});
    Check({1, 2, 2, 23, 70, d, kType, Causal(scale), false, 8});
  }
  for (const std::int64_t d : {64, 128}) {
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    for (const std::int64_t kv_heads : {1, 2, 8})
      Check({1, 8, kv_heads, 34, 34, d, kType, Causal(scale), true, 8});
    Check({1, 2, 1, 128, 128, d, kType, Causal(scale), true, 8});
    Check({1, 1, 1, 64, 128, d, kType, Full(scale), false, 8});
    Check({1, 1, 1, 130, 61, d, DataType::kFloat16, Full(scale), false, 8});
  }
  for (const std::int64_t window : {1, 20, 69, 200}) {
    Check({1, 2, 1, 70, 70, 64, kType, Causal(0.125, window), true, 8});
    Check({1, 2, 1, 33, 70, 64, DataType::kFloat16, Causal(0.125, window), false, 8});
  }
}

// More queries and keys than are worked on at once, of several heads that share keys.
TEST_P(AttentionTest, HalfTypesInBlocks) {
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    Check({2, 4, 2, 300, 300, 8, dtype, Causal(0.3), true});
    Check({1, 2, 1, 270, 333, 12, dtype, Causal(0.3, 100)});
    Check({1, 2, 1, 290, 70, 9, dtype, Causal(0.3, 0, 0.25)});
    Check({1, 1, 1, 270, 67, 16, dtype, Full(0.3, 20)});
    Check({1, 1, 1, 65, 400, 8, dtype, Full(0.3, 20)});
    Check({1, 1, 1, 66, 1400, 4, dtype, Causal(0.3)});
    Check({1, 2, 2, 64, 1100, 3, dtype, Causal(0.3, 1050, 0.25)});
  }
}

TEST_P(AttentionTest, GroupedHeads) {
  Check({2, 8, 2, 19, 19, 16, DataType::kFloat32, Causal()});
  Check({2, 6, 1, 19, 50, 16, DataType::kFloat32, Causal()});
  Check({3, 5, 5, 2, 50, 16, DataType::kBFloat16, Causal()});
  Check({2, 6, 3, 1, 300, 20, DataType::kFloat64, Causal()});
}

// Enough keys that the gradients are summed in several parts.
TEST_P(AttentionTest, ManyKeys) {
  Check({1, 2, 1, 70, 1300, 8, DataType::kFloat32, Causal()});
  Check({1, 1, 1, 40, 2200, 4, DataType::kBFloat16, Full()});
  Check({1, 1, 1, 1100, 1100, 4, DataType::kFloat32, Causal(0.3, 100)});
  // Of as many heads as keep a large device busy with few parts.
  Check({4, 8, 8, 70, 600, 4, DataType::kFloat32, Causal()});
  Check({4, 16, 8, 20, 600, 4, DataType::kFloat32, Full()});
  Check({1, 32, 32, 150, 600, 4, DataType::kFloat32, Causal(0.3, 40)});
}

// A long cache, and more rows than a grid of the emulator has blocks.
TEST_P(AttentionTest, Generation) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t t : {1, 4}) {
      Check({1, 4, 2, t, 1000, 16, dtype, Causal()});
      Check({1, 2, 2, t, 65, 33, dtype, Causal(0.3, 64)});
    }
  }
  constexpr std::int64_t kRows = 66'000;
  const auto make = [](std::int64_t length, std::uint64_t seed) {
    return MakeTensor(device(), DataType::kFloat32, {kRows, 1, length, 1},
                      RandomValues(kRows * length, -1, 1, seed));
  };
  const Tensor q = make(1, 1), k = make(2, 2), v = make(2, 3);
  Tensor out = test::MakeOutput(device(), DataType::kFloat32, {kRows, 1, 1, 1});
  Tensor lse = test::MakeOutput(device(), DataType::kFloat32, {kRows, 1, 1});
  Call<op::Attention>(out, lse, q, k, v, Tensor(), Causal());
  const test::ExpectedAttention expected =
      test::ReferenceAttention({kRows, 1, 1, 1, 2, 1, DataType::kFloat32, Causal()}, ToDoubles(q),
                               ToDoubles(k), ToDoubles(v), std::vector<double>(kRows, 0.0));
  ExpectClose(out, expected.out.values, {.operations = 30}, expected.out.scales);
  ExpectClose(lse, expected.lse, {.operations = 30, .scale = 1});
}

TEST_P(AttentionTest, DropoutCountsFromABaseInMemoryOfTheDevice) {
  const Tensor base = MakeTensor(device(), DataType::kInt64, {1}, {5});
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t t : {1, 37}) {  // One query has kernels of its own.
      const Case absolute = {1, 2, 1, t, 37, 16, dtype, Causal(0.3, 0, 0.4)};
      Case relative = absolute;
      relative.params.dropout_state.offset -= 5;
      relative.params.dropout_state.base = static_cast<const std::uint64_t*>(base.raw_data());
      const auto run = [](const Case& c) {
        const Result result =
            Run(c, RandomValues(c.h * c.t * c.d, -1, 1, 1), RandomValues(c.s * c.d, -1, 1, 2),
                RandomValues(c.s * c.d, -1, 1, 3), RandomValues(c.h * c.t * c.d, -1, 1, 4));
        return std::vector{ToDoubles(result.out), ToDoubles(result.grads.q),
                           ToDoubles(result.grads.k), ToDoubles(result.grads.v)};
      };
      EXPECT_EQ(run(relative), run(absolute)) << relative.ToString();
    }
  }
}

TEST_P(AttentionTest, Dropout) {
  for (const DataType dtype : test::kFloatingTypes) {
    Check({2, 2, 1, 50, 50, 8, dtype, Causal(0.3, 0, 0.25)});
    Check({2, 2, 1, 50, 61, 8, dtype, Causal(0.3, 20, 0.9)});
    Check({2, 2, 1, 3, 61, 8, dtype, Full(0.3, 0, 0.5)});
  }
}

TEST_P(AttentionTest, AQueryWithoutAKeyGivesZero) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const std::int64_t s : {0, 2}) {
      for (const std::int64_t t : {3, 20}) {
        const Case c{1, 2, 1, t, s, 8, dtype, Causal()};
        SCOPED_TRACE(c.ToString());
        const Result actual =
            Run(c, RandomValues(2 * t * 8, -1, 1, 1), RandomValues(s * 8, -1, 1, 2),
                RandomValues(s * 8, -1, 1, 3), RandomValues(2 * t * 8, -1, 1, 4));
        const std::vector<double> out = ToDoubles(actual.out), lse = ToDoubles(actual.lse),
                                  grad = ToDoubles(actual.grads.q);
        for (std::int64_t row = 0; row < 2 * t; ++row) {
          const bool empty = row % t < t - s;
          EXPECT_EQ(std::isinf(lse[row]), empty);
          for (std::int64_t x = 0; empty && x < 8; ++x) {
            EXPECT_EQ(out[row * 8 + x], 0.0);
            EXPECT_EQ(grad[row * 8 + x], 0.0);
          }
        }
        Check(c);
      }
    }
  }
}

TEST_P(AttentionTest, ZeroSizes) {
  Check({0, 2, 1, 5, 5, 8, DataType::kFloat32, Causal()});
  Check({2, 2, 1, 0, 5, 8, DataType::kFloat32, Causal()});
  Check({2, 2, 1, 5, 0, 8, DataType::kFloat32, Full()});
  Check({2, 0, 1, 5, 5, 8, DataType::kFloat32, Full()});
}

TEST_P(AttentionTest, LargeScoresStayFinite) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const std::int64_t t : {2, 40}) {
      const Case c{1, 1, 1, t, t, 4, dtype, Causal(50.0)};
      const std::int64_t count = t * 4;
      const Result actual = Run(c, RandomValues(count, -50, 50, 1), RandomValues(count, -50, 50, 2),
                                RandomValues(count, -1, 1, 3), RandomValues(count, -1, 1, 4));
      for (const Tensor& x :
           {actual.out, actual.lse, actual.grads.q, actual.grads.k, actual.grads.v}) {
        for (const double value : ToDoubles(x))
          EXPECT_TRUE(std::isfinite(value));
      }
    }
  }
}

TEST_P(AttentionTest, NanPassesThroughToTheQueriesThatSeeIt) {
  for (const std::int64_t t : {3, 40}) {
    const Case c{1, 1, 1, t, t, 4, DataType::kFloat32, Causal()};
    std::vector<double> k = RandomValues(t * 4, -1, 1, 2);
    k[(t - 1) * 4] = std::numeric_limits<double>::quiet_NaN();
    const Result actual = Run(c, RandomValues(t * 4, -1, 1, 1), k, RandomValues(t * 4, -1, 1, 3),
                              RandomValues(t * 4, -1, 1, 4));
    const std::vector<double> out = ToDoubles(actual.out);
    for (std::int64_t i = 0; i < t * 4; ++i)
      EXPECT_EQ(std::isnan(out[i]), i / 4 == t - 1);
  }
}

TEST_P(AttentionTest, SameBitsTwice) {
  const auto check = [](const Case& c) {
    SCOPED_TRACE(c.ToString());
    const auto run = [&] {
      return Run(c, RandomValues(8 * 150 * 16, -1, 1, 1), RandomValues(4 * 150 * 16, -1, 1, 2),
                 RandomValues(4 * 150 * 16, -1, 1, 3), RandomValues(8 * 150 * 16, -1, 1, 4));
    };
    ExpectSameBits(run(), run());
  };
  for (const DataType dtype : test::kFloatingTypes) {
    check({2, 4, 2, 150, 150, 16, dtype, Causal(0.3, 0, 0.1)});
    check({2, 4, 2, 150, 150, 16, dtype, Causal(), true, 8});
  }
}

// Where gradients may be added in any order, as a library's kernel does by default.
TEST_P(AttentionTest, AnyOrderOfSums) {
  SetDeterministic(false);
  for (const std::int64_t kv_heads : {1, 2, 4})
    Check({1, 4, kv_heads, 130, 130, 64, DataType::kBFloat16, Causal(0.125), true, 8});
  Check({2, 4, 2, 70, 150, 64, DataType::kBFloat16, Causal(0.125), false, 8});
  Check({1, 4, 2, 130, 130, 64, DataType::kFloat16, Causal(0.125), true, 8});
  SetDeterministic(true);
}

TEST_P(AttentionTest, ReplaysGiveTheBitsOfCalls) {
  if (!DeviceGraph::IsSupported(device())) GTEST_SKIP() << "the device has no graphs";
  for (const std::int64_t t : {3, 40, 128}) {
    const Case c{2, 4, 2, t, t, 64, DataType::kBFloat16, Causal(0.125), true, 8};
    SCOPED_TRACE(c.ToString());
    const std::vector<double> q = RandomValues(8 * t * 64, -1, 1, 1),
                              k = RandomValues(4 * t * 64, -1, 1, 2),
                              v = RandomValues(4 * t * 64, -1, 1, 3),
                              grad_out = RandomValues(8 * t * 64, -1, 1, 4);
    const Result called = Run(c, q, k, v, grad_out);
    Result replayed = Prepare(c, q, k, v, grad_out);
    DeviceGraph graph(device(), [&] { Enqueue(c, replayed); });
    graph.Launch();
    ExpectSameBits(replayed, called);
  }
}

TEST_P(AttentionTest, GradientsMatchDifferences) {
  for (const AttentionParams& params : {Causal(0.8), Full(0.8), Causal(0.8, 3, 0.4)})
    CheckDifferences({1, 2, 1, 7, 7, 3, DataType::kFloat64, params});
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(AttentionTest);

}  // namespace
}  // namespace infini_train
