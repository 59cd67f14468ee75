#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "infini_train/core/tensor.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

template <typename T>
Tensor Iota(const Dims& shape, double step = 1, double start = 0) {
  std::vector<T> values(static_cast<std::size_t>(Numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<T>(step * static_cast<double>(i) + start);
  return Tensor::FromVector(values, shape);
}

TEST(TensorPrint, KeepsOneRowOnOneLine) {
  EXPECT_EQ(Iota<float>({1, 2}, 1, 1).ToString(),
            "Tensor([[1.0000, 2.0000]], shape=[1, 2], dtype=float32, device=cpu)");
  EXPECT_EQ(Iota<double>({}, 1, 3.14159).ToString(),
            "Tensor(3.1416, shape=[], dtype=float64, device=cpu)");
  EXPECT_EQ(Tensor::Empty({0, 3}, DataType::kUInt16).ToString(),
            "Tensor([], shape=[0, 3], dtype=uint16, device=cpu)");
  EXPECT_EQ(Tensor().ToString(), "Tensor(undefined)");
}

TEST(TensorPrint, AlignsColumns) {
  EXPECT_EQ(Iota<float>({2, 3}, -0.37, 1).ToString(),
            "Tensor([[ 1.0000,  0.6300,  0.2600],\n"
            "        [-0.1100, -0.4800, -0.8500]],\n"
            "       shape=[2, 3], dtype=float32, device=cpu)");
  EXPECT_EQ(Iota<std::int64_t>({2, 2}, -50, 100).ToString(),
            "Tensor([[100,  50],\n"
            "        [  0, -50]],\n"
            "       shape=[2, 2], dtype=int64, device=cpu)");
  const Tensor flags = Tensor::Empty({2}, DataType::kBool);
  const bool values[] = {true, false};
  flags.CopyFromHost(values, sizeof(values));
  EXPECT_EQ(flags.ToString(), "Tensor([ true, false], shape=[2], dtype=bool, device=cpu)");
}

TEST(TensorPrint, SeparatesMatrices) {
  EXPECT_EQ(Iota<std::uint8_t>({2, 1, 3}).ToString(),
            "Tensor([[[0, 1, 2]],\n"
            "\n"
            "        [[3, 4, 5]]],\n"
            "       shape=[2, 1, 3], dtype=uint8, device=cpu)");
}

TEST(TensorPrint, TurnsScientificWhenNeeded) {
  EXPECT_EQ(Tensor::FromVector<float>({1e-7f, 1, NAN, -INFINITY}, {4}).ToString(),
            "Tensor([1.0000e-07, 1.0000e+00,        nan,       -inf], shape=[4], dtype=float32, "
            "device=cpu)");
  EXPECT_EQ(Tensor::FromVector<float>({0.5f, 2000}, {2}).ToString(),
            "Tensor([5.0000e-01, 2.0000e+03], shape=[2], dtype=float32, device=cpu)");
  EXPECT_EQ(Tensor::FromVector<float>({1, 20000, 0}, {3}).ToString(),
            "Tensor([    1.0000, 20000.0000,     0.0000], shape=[3], dtype=float32, device=cpu)");
  EXPECT_EQ(Tensor::FromVector<double>({1e8}, {1}).ToString(),
            "Tensor([1.0000e+08], shape=[1], dtype=float64, device=cpu)");
}

TEST(TensorPrint, WrapsLongRows) {
  EXPECT_EQ(Iota<std::int64_t>({20}, 1000, 1000).ToString(),
            "Tensor([ 1000,  2000,  3000,  4000,  5000,  6000,  7000,  8000,  9000, 10000,\n"
            "        11000, 12000, 13000, 14000, 15000, 16000, 17000, 18000, 19000, 20000],\n"
            "       shape=[20], dtype=int64, device=cpu)");
}

TEST(TensorPrint, AbbreviatesAboveAThousandElements) {
  EXPECT_EQ(Iota<std::int32_t>({1000}).ToString().find("..."), std::string::npos);
  EXPECT_EQ(Iota<std::int32_t>({1001}).ToString(),
            "Tensor([   0,    1,    2, ...,  998,  999, 1000], shape=[1001], dtype=int32, "
            "device=cpu)");
  EXPECT_EQ(Iota<std::int32_t>({100, 100}).ToString(),
            "Tensor([[   0,    1,    2, ...,   97,   98,   99],\n"
            "        [ 100,  101,  102, ...,  197,  198,  199],\n"
            "        [ 200,  201,  202, ...,  297,  298,  299],\n"
            "        ...,\n"
            "        [9700, 9701, 9702, ..., 9797, 9798, 9799],\n"
            "        [9800, 9801, 9802, ..., 9897, 9898, 9899],\n"
            "        [9900, 9901, 9902, ..., 9997, 9998, 9999]],\n"
            "       shape=[100, 100], dtype=int32, device=cpu)");
  // Dimensions of up to six stay whole.
  EXPECT_EQ(Iota<std::int32_t>({600, 2}).ToString(),
            "Tensor([[   0,    1],\n"
            "        [   2,    3],\n"
            "        [   4,    5],\n"
            "        ...,\n"
            "        [1194, 1195],\n"
            "        [1196, 1197],\n"
            "        [1198, 1199]],\n"
            "       shape=[600, 2], dtype=int32, device=cpu)");
}

TEST(TensorPrint, FollowsStrides) {
  EXPECT_EQ(Iota<std::int32_t>({2, 3}).AsStrided({3, 2}, {1, 3}, 0).ToString(),
            "Tensor([[0, 3],\n"
            "        [1, 4],\n"
            "        [2, 5]],\n"
            "       shape=[3, 2], dtype=int32, device=cpu)");
  EXPECT_EQ(Iota<std::int32_t>({2, 600}).AsStrided({600, 2}, {1, 600}, 0).ToString(),
            "Tensor([[   0,  600],\n"
            "        [   1,  601],\n"
            "        [   2,  602],\n"
            "        ...,\n"
            "        [ 597, 1197],\n"
            "        [ 598, 1198],\n"
            "        [ 599, 1199]],\n"
            "       shape=[600, 2], dtype=int32, device=cpu)");
}

TEST(TensorPrint, NamesTheDevice) {
  test::InChildProcess([] {
    test::RegisterMockProvider("cpux");
    const Tensor tensor = Tensor::Empty({2}, DataType::kInt32, Device(DeviceType::kPrivateUse1, 1));
    const std::int32_t values[] = {1, 2};
    tensor.CopyFromHost(values, sizeof(values));
    EXPECT_EQ(tensor.ToString(), "Tensor([1, 2], shape=[2], dtype=int32, device=cpux:1)");
  });
}

}  // namespace
}  // namespace infini_train
