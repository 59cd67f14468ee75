#include <algorithm>
#include <cmath>
#include <numbers>

#include "infini_train/core/error.h"
#include "infini_train/core/philox.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

class RandomTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RandomTest);

constexpr Generator::State kState = {0x123456789ABCDEFu, 42};

/// The words that the declaration of the random ops promises.
std::uint32_t Word(std::int64_t element, Generator::State state = kState) {
  const auto i = static_cast<std::uint64_t>(element);
  return Philox4x32(state.seed, state.offset, i / 4)[i % 4];
}

TEST_P(RandomTest, UniformFollowsTheSequence) {
  for (DataType dtype : kFloatingTypes) {
    for (std::int64_t count : {0, 1, 3, 1024, 10007}) {
      Tensor out = MakeOutput(device(), dtype, {count});
      Call<op::RandomUniform>(out, -2.0, 3.0, kState);
      std::vector<double> expected;
      // What would round to 3 becomes the number before it.
      const double largest = 3 - 4 * UnitRoundoff(dtype);
      for (std::int64_t i = 0; i < count; ++i)
        expected.push_back(
            std::min(largest, -2 + 5 * static_cast<double>(UniformFromBits(Word(i)))));
      ExpectClose(out, expected, {.operations = 2, .scale = 5});
    }
  }
}

TEST_P(RandomTest, OffsetsCountFromABaseInMemoryOfTheDevice) {
  const Tensor base = MakeTensor(device(), DataType::kInt64, {1}, {30});
  const Generator::State relative = {kState.seed, kState.offset - 30,
                                     static_cast<const std::uint64_t*>(base.raw_data())};
  const auto expect_same = [&](DataType dtype, const auto& draw) {
    Tensor from_base = MakeOutput(device(), dtype, {3001});
    Tensor expected = MakeOutput(device(), dtype, {3001});
    draw(from_base, relative);
    draw(expected, kState);
    EXPECT_EQ(ToDoubles(from_base), ToDoubles(expected));
  };
  expect_same(DataType::kFloat32, [](Tensor& out, Generator::State state) {
    Call<op::RandomUniform>(out, -2.0, 3.0, state);
  });
  expect_same(DataType::kBFloat16, [](Tensor& out, Generator::State state) {
    Call<op::RandomNormal>(out, 0.0, 1.0, state);
  });
  for (const std::int64_t high : {std::int64_t{1000}, std::int64_t{1} << 60}) {
    expect_same(DataType::kInt64, [&](Tensor& out, Generator::State state) {
      Call<op::RandomInt>(out, std::int64_t{0}, high, state);
    });
  }
  expect_same(DataType::kFloat64, [&](Tensor& out, Generator::State state) {
    const Tensor x = MakeTensor(device(), DataType::kFloat64, {3001}, RandomValues(3001, 1, 4, 1));
    Call<op::Dropout>(out, x, 0.5, state);
  });
}

TEST_P(RandomTest, AnyLengthAndAlignment) {
  for (DataType dtype : kFloatingTypes) {
    for (std::int64_t count : kRowLengths) {
      const Tensor x = MakeTensor(device(), dtype, {count}, RandomValues(count, 1, 4, 1));
      const Tensor shifted =
          MakeTensor(device(), dtype, {count}, RandomValues(count, 1, 4, 1), Layout::kShifted);
      const auto expect_same = [&](const auto& draw) {
        Tensor aligned = MakeOutput(device(), dtype, {count});
        Tensor behind = MakeOutput(device(), dtype, {count}, Layout::kShifted);
        draw(aligned, x);
        draw(behind, shifted);
        EXPECT_EQ(ToDoubles(aligned), ToDoubles(behind));
        ExpectGapsUntouched(behind);
      };
      expect_same(
          [](Tensor& out, const Tensor&) { Call<op::RandomNormal>(out, 0.0, 1.0, kState); });
      expect_same([](Tensor& out, const Tensor& in) { Call<op::Dropout>(out, in, 0.5, kState); });
    }
  }
}

TEST_P(RandomTest, UniformStaysInItsRangeAfterRounding) {
  for (DataType dtype : kFloatingTypes) {
    for (const auto& [low, high] :
         {std::pair{0.0, 1.0}, std::pair{-1.0, 0.0}, std::pair{1.0, 1.01}}) {
      Tensor out = MakeOutput(device(), dtype, {100000});
      Call<op::RandomUniform>(out, low, high, kState);
      const std::vector<double> values = ToDoubles(out);
      const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
      EXPECT_GE(*smallest, low);
      EXPECT_LT(*largest, high);
    }
  }
}

TEST_P(RandomTest, NormalIsBoxMullerOnWordPairs) {
  for (DataType dtype : kFloatingTypes) {
    const std::int64_t count = 10007;
    Tensor out = MakeOutput(device(), dtype, {count});
    Call<op::RandomNormal>(out, 1.5, 2.0, kState);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < count; ++i) {
      const double first = 1 - static_cast<double>(UniformFromBits(Word(i / 2 * 2)));
      const double angle =
          2 * std::numbers::pi * static_cast<double>(UniformFromBits(Word(i / 2 * 2 + 1)));
      expected.push_back(1.5 + 2 * std::sqrt(-2 * std::log(first)) *
                                   (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    }
    // The radius is at most 2 sqrt(2 ln 2^24) = 11.6.
    ExpectClose(out, expected, {.operations = 12, .scale = 12});
  }
}

TEST_P(RandomTest, NormalHasItsMoments) {
  Tensor out = MakeOutput(device(), DataType::kFloat32, {200000});
  Call<op::RandomNormal>(out, 0.0, 1.0, kState);
  double moments[4] = {};
  for (double value : ToDoubles(out)) {
    double power = 1;
    for (double& moment : moments)
      moment += (power *= value) / 200000;
  }
  // Five standard errors of each estimate.
  EXPECT_NEAR(moments[0], 0, 5 * std::sqrt(1 / 200000.0));
  EXPECT_NEAR(moments[1], 1, 5 * std::sqrt(2 / 200000.0));
  EXPECT_NEAR(moments[2], 0, 5 * std::sqrt(15 / 200000.0));
  EXPECT_NEAR(moments[3], 3, 5 * std::sqrt(96 / 200000.0));
}

TEST_P(RandomTest, IntegersAreUniformInTheirRange) {
  for (DataType dtype : {DataType::kInt64, DataType::kInt32}) {
    Tensor out = MakeOutput(device(), dtype, {70000});
    Call<op::RandomInt>(out, std::int64_t{-3}, std::int64_t{4}, kState);
    std::vector<int> counts(7, 0);
    for (double value : ToDoubles(out)) {
      ASSERT_GE(value, -3);
      ASSERT_LT(value, 4);
      ++counts[static_cast<std::size_t>(value + 3)];
    }
    for (int count : counts)
      EXPECT_NEAR(count, 10000, 5 * std::sqrt(10000 * 6 / 7.0));
  }
  Tensor wide = MakeOutput(device(), DataType::kInt64, {10000});
  Call<op::RandomInt>(wide, INT64_MIN, INT64_MAX, kState);
  int negative = 0;
  int odd = 0;
  for (std::int64_t value : wide.ToVector<std::int64_t>()) {
    negative += value < 0;
    odd += value % 2 != 0;
  }
  EXPECT_NEAR(negative, 5000, 250);
  EXPECT_NEAR(odd, 5000, 250);
}

TEST_P(RandomTest, DropoutKeepsAndScales) {
  for (DataType dtype : kFloatingTypes) {
    for (double p : {0.0, 0.1, 0.9, 1.0}) {
      const std::int64_t count = 10007;
      const Tensor x = MakeTensor(device(), dtype, {count}, RandomValues(count, -4, 4, 1));
      std::vector<double> expected = ToDoubles(x);
      for (std::int64_t i = 0; i < count; ++i) {
        double& value = expected[static_cast<std::size_t>(i)];
        value = UniformFromBits(Word(i)) < static_cast<float>(p) ? 0 : value / (1 - p);
      }
      Tensor out = MakeOutput(device(), dtype, {count});
      Call<op::Dropout>(out, x, p, kState);
      ExpectClose(out, expected, {.operations = 3});
    }
  }
}

TEST_P(RandomTest, SequencesDifferBySeedAndOffsetOnly) {
  const auto draw = [&](Generator::State state) {
    Tensor out = MakeOutput(device(), DataType::kFloat32, {1000});
    Call<op::RandomUniform>(out, 0.0, 1.0, state);
    return out.ToVector<float>();
  };
  EXPECT_EQ(draw(kState), draw(kState));
  EXPECT_NE(draw(kState), draw({kState.seed, kState.offset + 1}));
  EXPECT_NE(draw(kState), draw({kState.seed + 1, kState.offset}));
}

TEST_P(RandomTest, RangesThatAreNone) {
  Tensor floats = MakeOutput(device(), DataType::kFloat32, {4});
  Tensor integers = MakeOutput(device(), DataType::kInt64, {4});
  EXPECT_THROW(Call<op::RandomUniform>(floats, 1.0, 1.0, kState), Error);
  EXPECT_THROW(Call<op::RandomInt>(integers, std::int64_t{2}, std::int64_t{2}, kState), Error);
  EXPECT_THROW(Call<op::Dropout>(floats, floats, 1.5, kState), Error);
  EXPECT_THROW(Call<op::RandomUniform>(integers, 0.0, 1.0, kState), Error);
}

}  // namespace
}  // namespace infini_train::test
