#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/common/gradcheck.h"

namespace infini_train {
namespace {

using test::CheckGradients;
using test::ExpectEqual;
using test::Inputs;
using test::MakeTensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

class ExpertsTest : public DeviceTest {
 protected:
  static Tensor Counts(const std::vector<double>& counts) {
    return MakeTensor(device(), DataType::kInt64, {static_cast<std::int64_t>(counts.size())},
                      counts);
  }
  static Tensor Floats(const Dims& shape, const std::vector<double>& values) {
    return MakeTensor(device(), DataType::kFloat32, shape, values);
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ExpertsTest);

TEST_P(ExpertsTest, GroupedLinearGradients) {
  const struct {
    const char* name;
    std::int64_t rows;
    std::vector<double> counts;
  } kCases[] = {{"groups, one without rows", 7, {3, 0, 4}},
                {"rows of no group", 6, {1, 2}},
                {"one group", 5, {5}},
                {"no rows", 0, {0, 0}}};
  for (const auto& c : kCases) {
    const Tensor counts = Counts(c.counts);
    CheckGradients(device(),
                   {.name = std::string("GroupedLinear of ") + c.name,
                    .function = [&](const Inputs& x) { return GroupedLinear(x[0], x[1], counts); },
                    .inputs = {{{c.rows, 4}}, {{static_cast<std::int64_t>(c.counts.size()), 3, 4}}},
                    .operations = 32});
  }
}

TEST_P(ExpertsTest, EachGroupIsALinear) {
  const std::vector<double> weights = {1, 2, 3, 4, 5, 6, 7, 8};
  const Tensor x = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor weight = Floats({2, 2, 2}, weights);
  ExpectEqual(GroupedLinear(x, weight, Counts({1, 2})), {5, 11, 39, 53, 61, 83});
  ExpectEqual(GroupedLinear(x, weight, Counts({0, 1})), {17, 23, 0, 0, 0, 0});
}

TEST_P(ExpertsTest, GradientsAddUpInTheWeight) {
  for (const bool autocast : {false, true}) {
    const Autocast scope(autocast ? std::optional(DataType::kBFloat16) : std::nullopt);
    const Tensor weight = Full({2, 1, 2}, 0.5, DataType::kFloat32, device());
    weight.set_requires_grad();
    const Tensor x = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
    for (int pass = 1; pass <= 3; ++pass) {
      Backward(Sum(GroupedLinear(x, weight, Counts({1, 2}))) +
               Sum(GroupedLinear(x, weight, Counts({2, 0}))));
      EXPECT_EQ(weight.grad().dtype(), DataType::kFloat32);
      ExpectEqual(weight.grad(), {5.0 * pass, 8.0 * pass, 8.0 * pass, 10.0 * pass});
    }
  }
}

TEST_P(ExpertsTest, RowsAreSortedByExpert) {
  const Tensor experts = MakeTensor(device(), DataType::kInt64, {3, 2}, {2, 0, 0, 2, 3, 2});
  const ExpertOrder order = SortByExpert(experts, 5);
  ExpectEqual(order.rows, {2, 0, 1, 3, 5, 4});
  ExpectEqual(order.counts, {2, 0, 3, 1, 0});
}

TEST_P(ExpertsTest, TokensGoToTheirRowsAndBack) {
  const Tensor rows = MakeTensor(device(), DataType::kInt64, {2, 2}, {3, 0, 2, 1});
  const Tensor x = Floats({2, 2}, {1, 2, 3, 4});
  const Tensor permuted = ExpertPermute(x, rows);
  ExpectEqual(permuted, {1, 2, 3, 4, 3, 4, 1, 2});
  ExpectEqual(ExpertUnpermute(permuted, rows, Floats({2, 2}, {1, 0.5, 2, -1})), {1.5, 3, 3, 4});
}

TEST_P(ExpertsTest, PermutationGradients) {
  for (const std::int64_t choices : {1, 2, 3}) {
    const std::int64_t tokens = 4, hidden = 5;
    std::vector<double> chosen;
    for (std::int64_t i = 0; i < tokens * choices; ++i)
      chosen.push_back(static_cast<double>((7 * i + i / choices) % 3));
    const Tensor experts = MakeTensor(device(), DataType::kInt64, {tokens, choices}, chosen);
    const Tensor rows = SortByExpert(experts, 3).rows;
    CheckGradients(device(),
                   {.name = "ExpertPermute",
                    .function = [&](const Inputs& x) { return ExpertPermute(x[0], rows); },
                    .inputs = {{{tokens, hidden}}},
                    .operations = 8});
    CheckGradients(device(),
                   {.name = "ExpertUnpermute",
                    .function = [&](const Inputs& x) { return ExpertUnpermute(x[0], rows, x[1]); },
                    .inputs = {{{tokens * choices, hidden}}, {{tokens, choices}}},
                    .operations = 16});
  }
}

TEST_P(ExpertsTest, WrongPermutationsAreErrors) {
  const Tensor rows = MakeTensor(device(), DataType::kInt64, {2, 2}, {3, 0, 2, 1});
  const Tensor x = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor y = Full({4, 3}, 1, DataType::kFloat32, device());
  const Tensor weights = Full({2, 2}, 1, DataType::kFloat32, device());
  const auto refuses = [](const auto& call, const char* why) {
    EXPECT_THAT(call, ThrowsMessage<Error>(HasSubstr(why)));
  };
  refuses([&] { SortByExpert(Select(rows, 0, 0), 4); }, "expected experts [tokens, choices]");
  refuses([&] { SortByExpert(rows, 0); }, "1 or more");
  refuses([&] { SortByExpert(weights, 4); }, "SortByExpert");
  refuses([&] { ExpertPermute(x, rows); }, "expected rows int64 [3, choices], got int64 [2, 2]");
  refuses([&] { ExpertPermute(Select(x, 0, 0), rows); }, "expected x [tokens, C]");
  refuses([&] { ExpertUnpermute(x, rows, weights); }, "got [3, 2] and [2, 2]");
  refuses(
      [&] {
        ExpertUnpermute(y, Reshape(rows, {4, 1}), weights);
      },
      "expected rows int64 [2, 2], got int64 [4, 1]");
}

TEST_P(ExpertsTest, WrongShapesAreErrors) {
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor weight = Full({2, 4, 3}, 1, DataType::kFloat32, device());
  const auto refuses = [&](const Tensor& x, const Tensor& weight, const Tensor& counts,
                           const char* why) {
    EXPECT_THAT([&] { GroupedLinear(x, weight, counts); }, ThrowsMessage<Error>(HasSubstr(why)));
  };
  refuses(Floats({6}, {1, 2, 3, 4, 5, 6}), weight, Counts({1, 1}), "x [rows, in]");
  refuses(Floats({3, 2}, {1, 2, 3, 4, 5, 6}), weight, Counts({1, 1}), "got [3, 2] and [2, 4, 3]");
  refuses(x, weight, Counts({1, 1, 0}), "counts of shape [2], got int64 [3]");
  refuses(x, weight, Floats({2}, {1, 1}), "expected int64 counts");
}

}  // namespace
}  // namespace infini_train
