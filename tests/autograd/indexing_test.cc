#include <gtest/gtest.h>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/common/gradcheck.h"

namespace infini_train {
namespace {

using test::CheckGradients;
using test::ExpectEqual;
using test::Inputs;
using test::MakeTensor;

class IndexingTest : public DeviceTest {
 protected:
  Tensor Index(const Dims& shape, const std::vector<double>& values,
               DataType dtype = DataType::kInt64) const {
    return MakeTensor(device(), dtype, shape, values);
  }
  Tensor Floats(const Dims& shape, const std::vector<double>& values) const {
    return MakeTensor(device(), DataType::kFloat32, shape, values);
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(IndexingTest);

TEST_P(IndexingTest, GatherAndScatterGradients) {
  for (const DataType dtype : {DataType::kInt64, DataType::kInt32}) {
    // Along dimension 1 of [3, 4], with repeated positions and fewer rows than x has.
    const Tensor index = Index({2, 5}, {0, 3, 3, 1, 0, 2, 2, 2, 0, 1}, dtype);
    CheckGradients(device(), {.name = "Gather",
                              .function = [&](const Inputs& x) { return Gather(x[0], 1, index); },
                              .inputs = {{{3, 4}}}});
    CheckGradients(device(),
                   {.name = "Scatter",
                    .function = [&](const Inputs& x) { return Scatter(x[0], -1, index, x[1]); },
                    .inputs = {{{3, 4}}, {{2, 5}}}});
    CheckGradients(device(),
                   {.name = "ScatterAdd",
                    .function = [&](const Inputs& x) { return ScatterAdd(x[0], 1, index, x[1]); },
                    .inputs = {{{3, 4}}, {{2, 5}}}});
    const Tensor rows = Index({1, 2, 2}, {1, 0, 1, 1}, dtype);
    CheckGradients(device(), {.name = "Gather of three dimensions",
                              .function = [&](const Inputs& x) { return Gather(x[0], 0, rows); },
                              .inputs = {{{2, 2, 3}}}});
  }
}

TEST_P(IndexingTest, IndexSelectAndAddGradients) {
  for (const DataType dtype : {DataType::kInt64, DataType::kInt32}) {
    const Tensor index = Index({4}, {2, 0, 2, 1}, dtype);
    const Tensor nothing = Index({0}, {}, dtype);
    for (const int dim : {0, 1, -1}) {
      CheckGradients(device(),
                     {.name = "IndexSelect",
                      .function = [&](const Inputs& x) { return IndexSelect(x[0], dim, index); },
                      .inputs = {{{3, 3, 3}}}});
      CheckGradients(device(),
                     {.name = "IndexSelect of nothing",
                      .function = [&](const Inputs& x) { return IndexSelect(x[0], dim, nothing); },
                      .inputs = {{{3, 2, 4}}}});
    }
    CheckGradients(device(),
                   {.name = "IndexAdd",
                    .function = [&](const Inputs& x) { return IndexAdd(x[0], 1, index, x[1]); },
                    .inputs = {{{2, 3}}, {{2, 4}}}});
  }
}

TEST_P(IndexingTest, SortAndTopKGradients) {
  for (const int dim : {0, 1, -1}) {
    for (const bool flag : {false, true}) {
      CheckGradients(device(), {.name = "Sort",
                                .function = [&](const Inputs& x) { return Sort(x[0], dim, flag); },
                                .inputs = {{{3, 4, 2}}},
                                .expanded = false});
      CheckGradients(device(),
                     {.name = "TopK",
                      .function = [&](const Inputs& x) { return TopK(x[0], 2, dim, flag); },
                      .inputs = {{{3, 4, 2}}},
                      .expanded = false});
    }
  }
}

TEST_P(IndexingTest, TheLastScatterWinsAndHasTheGradient) {
  const Tensor x = Floats({4}, {0, 0, 0, 0});
  const Tensor src = Floats({3}, {5, 6, 7});
  x.set_requires_grad();
  src.set_requires_grad();
  const Tensor y = Scatter(x, 0, Index({3}, {1, 2, 1}), src);
  ExpectEqual(y, {0, 7, 6, 0});
  Backward(Sum(y * Floats({4}, {1, 2, 3, 4})));
  ExpectEqual(x.grad(), {1, 0, 0, 4});
  ExpectEqual(src.grad(), {0, 3, 2});
}

TEST_P(IndexingTest, Values) {
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  ExpectEqual(Gather(x, 1, Index({2, 2}, {2, 0, 1, 1})), {3, 1, 5, 5});
  ExpectEqual(Gather(x, 0, Index({1, 2}, {1, 0})), {4, 2});
  ExpectEqual(ScatterAdd(x, 1, Index({2, 2}, {0, 0, 2, 1}), Floats({2, 2}, {10, 20, 30, 40})),
              {31, 2, 3, 4, 45, 36});
  ExpectEqual(IndexSelect(x, 1, Index({2}, {2, 0})), {3, 1, 6, 4});
  ExpectEqual(IndexAdd(x, 0, Index({2}, {1, 1}), Floats({2, 3}, {1, 1, 1, 2, 2, 2})),
              {1, 2, 3, 7, 8, 9});
  ExpectEqual(x, {1, 2, 3, 4, 5, 6});
}

TEST_P(IndexingTest, SortIsStableAndTopKIsSorted) {
  const Tensor x = Floats({2, 4}, {2, 1, 2, 0, 3, 3, 1, 4});
  const auto [ascending, positions] = Sort(x, 1);
  ExpectEqual(ascending, {0, 1, 2, 2, 1, 3, 3, 4});
  ExpectEqual(positions, {3, 1, 0, 2, 2, 0, 1, 3});
  const auto [descending, from_largest] = Sort(x, -1, true);
  ExpectEqual(descending, {2, 2, 1, 0, 4, 3, 3, 1});
  ExpectEqual(from_largest, {0, 2, 1, 3, 3, 0, 1, 2});
  const auto [columns, column_positions] = Sort(x, 0);
  ExpectEqual(columns, {2, 1, 1, 0, 3, 3, 2, 4});
  ExpectEqual(column_positions, {0, 0, 1, 0, 1, 1, 0, 1});
  const auto [largest, largest_positions] = TopK(x, 2, 1);
  ExpectEqual(largest, {2, 2, 4, 3});
  ExpectEqual(largest_positions, {0, 2, 3, 0});
  const auto [smallest, smallest_positions] = TopK(x, 1, 0, false);
  ExpectEqual(smallest, {2, 1, 1, 0});
  ExpectEqual(smallest_positions, {0, 0, 1, 0});
  EXPECT_EQ(TopK(x, 0, 1).first.shape(), (Dims{2, 0}));
}

TEST_P(IndexingTest, BadArgumentsAreErrors) {
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THROW(Gather(x, 1, Floats({2, 1}, {0, 0})), Error);
  EXPECT_THROW(Gather(x, 1, Index({2}, {0, 0})), Error);
  EXPECT_THROW(Gather(x, 1, Index({3, 1}, {0, 0, 0})), Error);
  EXPECT_THROW(Gather(x, 2, Index({2, 1}, {0, 0})), Error);
  EXPECT_THROW(Scatter(x, 1, Index({2, 1}, {0, 0}), Floats({2, 2}, {0, 0, 0, 0})), Error);
  EXPECT_THROW(Scatter(x, 1, Index({2, 1}, {0, 0}), Index({2, 1}, {0, 0})), Error);
  EXPECT_THROW(ScatterAdd(MakeTensor(device(), DataType::kBool, {2}, {0, 1}), 0, Index({1}, {0}),
                          MakeTensor(device(), DataType::kBool, {1}, {1})),
               Error);
  EXPECT_THROW(IndexSelect(x, 0, Index({1, 1}, {0})), Error);
  EXPECT_THROW(IndexAdd(x, 0, Index({1}, {0}), Floats({2, 3}, {1, 2, 3, 4, 5, 6})), Error);
  EXPECT_THROW(TopK(x, 4, 1), Error);
  EXPECT_THROW(TopK(x, -1, 1), Error);
  EXPECT_THROW(Sort(x, 2), Error);
}

TEST_P(IndexingTest, PositionsOutOfRangeAreErrorsOnTheHost) {
  if (!device().is_cpu()) GTEST_SKIP() << "only the CPU can tell at once";
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const double position : {-1.0, 3.0}) {
    EXPECT_THROW(Gather(x, 1, Index({2, 1}, {0, position})), Error);
    EXPECT_THROW(Scatter(x, 1, Index({2, 1}, {0, position}), Floats({2, 1}, {0, 0})), Error);
    EXPECT_THROW(IndexSelect(x, 1, Index({2}, {0, position})), Error);
    EXPECT_THROW(IndexAdd(x, 1, Index({1}, {position}), Floats({2, 1}, {0, 0})), Error);
  }
}

}  // namespace
}  // namespace infini_train
