#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectEqual;
using test::ToDoubles;

class CreationTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(CreationTest);

TEST_P(CreationTest, Constants) {
  for (const DataType dtype : test::kAllTypes) {
    ExpectEqual(Zeros({2, 2}, dtype, device()), {0, 0, 0, 0});
    ExpectEqual(Ones({3}, dtype, device()), {1, 1, 1});
    ExpectEqual(ZerosLike(Ones({1}, dtype, device())), {0});
    EXPECT_EQ(Full({}, 1, dtype, device()).dtype(), dtype);
  }
  ExpectEqual(Full({2}, -1.5, DataType::kFloat16, device()), {-1.5, -1.5});
  EXPECT_EQ(Zeros({0, 3}, DataType::kFloat32, device()).numel(), 0);
  EXPECT_EQ(Zeros({2}, DataType::kFloat32, device()).device(), device());
}

TEST_P(CreationTest, Arange) {
  ExpectEqual(Arange(0, 4, 1, DataType::kInt64, device()), {0, 1, 2, 3});
  ExpectEqual(Arange(1, 8, 3, DataType::kInt32, device()), {1, 4, 7});
  ExpectEqual(Arange(1, 7, 3, DataType::kInt32, device()), {1, 4});
  ExpectEqual(Arange(3, -4, -2, DataType::kInt64, device()), {3, 1, -1, -3});
  ExpectEqual(Arange(3, -3, -2, DataType::kInt64, device()), {3, 1, -1});
  ExpectEqual(Arange(0, 1, 0.25, DataType::kFloat32, device()), {0, 0.25, 0.5, 0.75});
  ExpectEqual(Arange(1, 0, -0.5, DataType::kFloat64, device()), {1, 0.5});
  EXPECT_EQ(Arange(0, 0).numel(), 0);
  EXPECT_EQ(Arange(3, 1).numel(), 0);
  EXPECT_EQ(Arange(0.0, -1.0, 0.5, DataType::kFloat32).numel(), 0);
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(Arange(kLargest - 2, kLargest).ToVector<std::int64_t>(),
            (std::vector<std::int64_t>{kLargest - 2, kLargest - 1}));
  EXPECT_THROW(Arange(0, 1, 0), Error);
  EXPECT_THROW(Arange(0, 1, 0.5), Error);
  EXPECT_THROW(Arange(0, std::numeric_limits<double>::infinity(), 1, DataType::kFloat32), Error);
}

TEST_P(CreationTest, RandomNumbersFollowTheSeedAndDiffer) {
  Generator generator(7);
  const std::vector<double> first =
      ToDoubles(Uniform({100}, -1, 3, DataType::kFloat32, device(), &generator));
  const std::vector<double> second =
      ToDoubles(Uniform({100}, -1, 3, DataType::kFloat32, device(), &generator));
  EXPECT_NE(first, second);
  Generator again(7);
  EXPECT_EQ(ToDoubles(Uniform({100}, -1, 3, DataType::kFloat32, device(), &again)), first);
  for (const double value : first) {
    EXPECT_GE(value, -1);
    EXPECT_LT(value, 3);
  }
  ManualSeed(11);
  const std::vector<double> from_default =
      ToDoubles(Normal({10}, 0, 1, DataType::kFloat32, device()));
  ManualSeed(11);
  EXPECT_EQ(ToDoubles(Normal({10}, 0, 1, DataType::kFloat32, device())), from_default);
}

TEST_P(CreationTest, NormalHasItsMeanAndDeviation) {
  constexpr int kCount = 40000;
  Generator generator(3);
  for (const DataType dtype : test::kFloatingTypes) {
    const std::vector<double> values =
        ToDoubles(Normal({kCount}, 5, 2, dtype, device(), &generator));
    double sum = 0;
    double squares = 0;
    for (const double value : values) {
      sum += value - 5;
      squares += (value - 5) * (value - 5);
    }
    // Standard errors: 2 / 200 for the mean, 4 √2 / 200 for the variance. Five of each.
    EXPECT_NEAR(sum / kCount, 0, 0.05) << ToString(dtype);
    EXPECT_NEAR(squares / kCount, 4, 0.15) << ToString(dtype);
  }
}

TEST_P(CreationTest, RandomIntegersCoverTheirRange) {
  Generator generator(3);
  for (const DataType dtype : {DataType::kInt64, DataType::kInt32}) {
    const std::vector<double> values =
        ToDoubles(RandomInt({1000}, -2, 3, dtype, device(), &generator));
    int counts[5] = {};
    for (const double value : values) {
      ASSERT_GE(value, -2);
      ASSERT_LT(value, 3);
      ++counts[static_cast<int>(value) + 2];
    }
    for (const int count : counts)
      EXPECT_NEAR(count, 200, 65);  // Five standard deviations.
  }
}

TEST_P(CreationTest, BadArgumentsAreErrors) {
  EXPECT_THROW(Zeros({-1}), Error);
  EXPECT_THROW(Uniform({1}, 1, 0), Error);
  EXPECT_THROW(Uniform({1}, 0, std::nan("")), Error);
  EXPECT_THROW(Uniform({1}, 0, 1, DataType::kInt64), Error);
  EXPECT_THROW(Normal({1}, 0, -1), Error);
  EXPECT_THROW(Normal({1}, 0, 1, DataType::kBool), Error);
  EXPECT_THROW(RandomInt({1}, 1, 1), Error);
  EXPECT_THROW(RandomInt({1}, 0, 1, DataType::kFloat32), Error);
}

}  // namespace
}  // namespace infini_train
