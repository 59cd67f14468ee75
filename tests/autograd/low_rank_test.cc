#include "infini_train/autograd/low_rank.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "tests/common/device_test.h"
#include "tests/common/errors.h"
#include "tests/common/gradcheck.h"

namespace infini_train {
namespace {

using test::CheckGradients;
using test::ExpectEqual;
using test::Inputs;
using test::MakeTensor;
using test::MessageOf;

class LowRankTest : public DeviceTest {
 protected:
  static Tensor Floats(const Dims& shape, const std::vector<double>& values) {
    return MakeTensor(device(), DataType::kFloat32, shape, values);
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(LowRankTest);

TEST_P(LowRankTest, GradientsOfOneTerm) {
  for (const double scale : {1.0, 0.75}) {
    CheckGradients(device(), {.name = "AddLowRank with scale " + std::to_string(scale),
                              .function =
                                  [&](const Inputs& x) {
                                    const std::vector<LowRankTerm> terms = {{x[2], x[3]}};
                                    return AddLowRank(Linear(x[0], x[1]), x[0], terms, scale);
                                  },
                              .inputs = {{{2, 3, 4}}, {{5, 4}}, {{2, 4}}, {{5, 2}}},
                              .operations = 64,
                              .stores_between = true});
  }
}

TEST_P(LowRankTest, GradientsOfTermsOfSomeFeatures) {
  CheckGradients(device(),
                 {.name = "AddLowRank of two terms",
                  .function =
                      [](const Inputs& x) {
                        const std::vector<LowRankTerm> terms = {{x[2], x[3], 1}, {x[4], x[5], 4}};
                        return AddLowRank(Linear(x[0], x[1]), x[0], terms, 0.5);
                      },
                  .inputs = {{{3, 4}}, {{7, 4}}, {{2, 4}}, {{2, 2}}, {{1, 4}}, {{3, 1}}},
                  .operations = 64,
                  .stores_between = true});
}

TEST_P(LowRankTest, AddsTheProducts) {
  const Tensor x = Floats({2, 2}, {1, 2, 3, 4});
  const std::vector<LowRankTerm> terms = {
      {Floats({1, 2}, {1, 1}), Floats({1, 1}, {2}), 0},
      {Floats({2, 2}, {1, 0, 0, 1}), Floats({1, 2}, {10, 100}), 2}};
  const Tensor y = Full({2, 3}, 1, DataType::kFloat32, device());
  const Tensor sum = AddLowRank(y, x, terms, 0.5);
  ExpectEqual(sum, {4, 1, 106, 8, 1, 216});
  EXPECT_TRUE(sum.IsSameAs(y)) << "expected no copy of y";
}

TEST_P(LowRankTest, OnlyTermsThatAreTrainedHaveGradients) {
  for (const bool autocast : {false, true}) {
    const Autocast scope(autocast ? std::optional(DataType::kBFloat16) : std::nullopt);
    const Tensor x = Floats({2, 2}, {1, 2, 3, 4});
    const Tensor weight = Floats({2, 2}, {1, 0, 0, 1});
    const Tensor a = Floats({1, 2}, {1, 1});
    const Tensor b = Floats({2, 1}, {1, 2});
    a.set_requires_grad();
    b.set_requires_grad();
    for (int pass = 1; pass <= 2; ++pass) {
      const std::vector<LowRankTerm> terms = {{a, b}};
      Backward(Sum(AddLowRank(Linear(x, weight), x, terms, 2.0)));
      EXPECT_EQ(a.grad().dtype(), DataType::kFloat32);
      EXPECT_EQ(b.grad().dtype(), DataType::kFloat32);
      ExpectEqual(a.grad(), {24.0 * pass, 36.0 * pass});
      ExpectEqual(b.grad(), {20.0 * pass, 20.0 * pass});
    }
    EXPECT_FALSE(weight.grad().defined());
  }
}

TEST_P(LowRankTest, WrongShapesAreErrors) {
  const auto zeros = [&](const Dims& shape) { return Zeros(shape, DataType::kFloat32, device()); };
  const auto add = [&](const Dims& y, const Dims& x, const LowRankTerm& term) {
    const std::vector<LowRankTerm> terms = {term};
    AddLowRank(zeros(y), zeros(x), terms, 1.0);
  };
  EXPECT_EQ(MessageOf([&] {
              add({3, 5}, {2, 4}, {zeros({2, 4}), zeros({5, 2})});
            }),
            "AddLowRank: expected y [.., out] and x [.., in], got [3, 5] and [2, 4]");
  EXPECT_EQ(MessageOf([&] {
              add({2, 5}, {2, 4}, {zeros({2, 3}), zeros({5, 2})});
            }),
            "AddLowRank: expected a [rank, 4] and b [features, rank] within 5 features, got "
            "[2, 3], and [5, 2] from feature 0");
  EXPECT_EQ(MessageOf([&] {
              add({2, 5}, {2, 4}, {zeros({2, 4}), zeros({3, 2}), 3});
            }),
            "AddLowRank: expected a [rank, 4] and b [features, rank] within 5 features, got "
            "[2, 4], and [3, 2] from feature 3");
}

}  // namespace
}  // namespace infini_train
