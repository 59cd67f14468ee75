#include "infini_train/core/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/storage.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

using test::InChildProcess;
using ::testing::ElementsAreArray;

Tensor Iota(const Dims& shape) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(Numel(shape)));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::FromVector(values, shape);
}

TEST(Tensor, KnowsWhatItIs) {
  const Tensor tensor = Iota({2, 3});
  EXPECT_EQ(tensor.shape(), Dims({2, 3}));
  EXPECT_EQ(tensor.strides(), Dims({3, 1}));
  EXPECT_EQ(tensor.dtype(), DataType::kInt32);
  EXPECT_EQ(tensor.device(), Device());
  EXPECT_EQ(tensor.rank(), 2);
  EXPECT_EQ(tensor.numel(), 6);
  EXPECT_EQ(tensor.nbytes(), 24u);
  EXPECT_EQ(tensor.size(-1), 3);
  EXPECT_TRUE(tensor.IsContiguous());
  EXPECT_ERROR(tensor.size(2), "dimension 2");
  EXPECT_THAT(tensor.ToVector<std::int32_t>(), ElementsAreArray({0, 1, 2, 3, 4, 5}));
  EXPECT_ERROR(tensor.ToVector<float>(), "expected a tensor of float32, got int32");
  EXPECT_ERROR(tensor.data<std::int64_t>(), "int64");
}

TEST(Tensor, IsUndefinedByDefault) {
  const Tensor tensor;
  EXPECT_FALSE(tensor.defined());
  EXPECT_ERROR(tensor.shape(), "undefined");
  EXPECT_ERROR(tensor.raw_data(), "undefined");
  EXPECT_ERROR(tensor.ToVector<float>(), "undefined");
  EXPECT_FALSE(tensor.SharesStorageWith(tensor));
}

TEST(Tensor, MayHaveNoElementsOrNoDimensions) {
  const Tensor empty = Tensor::Empty({2, 0, 3});
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_TRUE(empty.IsContiguous());
  EXPECT_TRUE(empty.ToVector<float>().empty());
  const Tensor slice = empty.AsStrided({2, 0, 1}, empty.strides(), 1);
  EXPECT_EQ(slice.raw_data(), nullptr);
  EXPECT_TRUE(slice.ToVector<float>().empty());
  const Tensor scalar = Tensor::FromVector<double>({2.5}, {});
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.Item(), 2.5);
  EXPECT_ERROR(empty.Item(), "shape [2, 0, 3]");
}

TEST(Tensor, RefusesImpossibleShapes) {
  EXPECT_ERROR(Tensor::Empty({-1}), "negative");
  EXPECT_ERROR(Tensor::Empty({INT64_MAX, 4}), "too many elements");
  EXPECT_ERROR(Tensor::Empty({INT64_MAX}), "does not fit in memory");
  EXPECT_ERROR(Tensor::Empty({INT64_MAX / 8}), "out of memory");
  EXPECT_ERROR(Tensor::Empty({INT64_MAX}, DataType::kUInt8), "out of memory");
  EXPECT_ERROR(Tensor::FromVector<float>({1, 2, 3}, {2}), "expected 8 bytes");
}

TEST(Tensor, ViewsShareMemory) {
  const Tensor tensor = Iota({2, 3});
  const Tensor transposed = tensor.AsStrided({3, 2}, {1, 3}, 0);
  EXPECT_TRUE(transposed.SharesStorageWith(tensor));
  EXPECT_FALSE(transposed.IsContiguous());
  EXPECT_THAT(transposed.ToVector<std::int32_t>(), ElementsAreArray({0, 3, 1, 4, 2, 5}));
  tensor.data<std::int32_t>()[1] = 9;
  EXPECT_THAT(transposed.ToVector<std::int32_t>(), ElementsAreArray({0, 3, 9, 4, 2, 5}));
  EXPECT_THAT(tensor.AsStrided({2}, {1}, 4).ToVector<std::int32_t>(), ElementsAreArray({4, 5}));
  EXPECT_THAT(tensor.AsStrided({3}, {-2}, 5).ToVector<std::int32_t>(), ElementsAreArray({5, 3, 9}));
  EXPECT_THAT(tensor.AsStrided({2, 2}, {0, 1}, 3).ToVector<std::int32_t>(),
              ElementsAreArray({3, 4, 3, 4}));
  EXPECT_THAT(tensor.AsStrided({}, {}, 2).ToVector<std::int32_t>(), ElementsAreArray({2}));
  EXPECT_ERROR(transposed.CopyFromHost(nullptr, 24), "contiguous");
}

TEST(Tensor, IgnoresStridesOfExtentOneForContiguity) {
  const Tensor tensor = Iota({4});
  EXPECT_TRUE(tensor.AsStrided({1, 4, 1}, {77, 1, 99}, 0).IsContiguous());
  EXPECT_FALSE(tensor.AsStrided({2, 2}, {1, 2}, 0).IsContiguous());
  EXPECT_FALSE(tensor.AsStrided({2}, {0}, 0).IsContiguous());
}

TEST(Tensor, ViewsStayInsideTheirStorage) {
  const Tensor tensor = Iota({2, 3});
  EXPECT_ERROR(tensor.AsStrided({7}, {1}, 0), "storage of 6 int32 elements");
  EXPECT_ERROR(tensor.AsStrided({2}, {1}, 5), "offset 5");
  EXPECT_ERROR(tensor.AsStrided({2}, {-1}, 0), "strides [-1]");
  EXPECT_ERROR(tensor.AsStrided({1}, {1}, -1), "offset -1");
  EXPECT_ERROR(tensor.AsStrided({2, 2}, {3, 3}, 0), "does not fit");
  EXPECT_ERROR(tensor.AsStrided({3}, {INT64_MAX}, 1), "does not fit");
  EXPECT_ERROR(tensor.AsStrided({3}, {INT64_MIN}, 1), "does not fit");
  EXPECT_ERROR(tensor.AsStrided({2, 2}, {INT64_MAX, INT64_MAX}, 0), "does not fit");
  EXPECT_ERROR(tensor.AsStrided({2}, {1, 1}, 0), "differ in length");
  EXPECT_NO_THROW(tensor.AsStrided({INT64_MAX, 0}, {INT64_MAX, 1}, 0));
}

TEST(Tensor, HoldsForeignMemoryUntilTheLastViewIsGone) {
  std::vector<float> buffer = {1, 2, 3, 4};
  int released = 0;
  auto storage =
      std::make_shared<Storage>(Device(), buffer.data(), sizeof(float) * 4, [&] { ++released; });
  Tensor view = Tensor::FromStorage(std::move(storage), DataType::kFloat32, {2}, {2}, 1)
                    .AsStrided({1}, {1}, 3);
  EXPECT_THAT(view.ToVector<float>(), ElementsAreArray({4}));
  EXPECT_EQ(released, 0);
  view = Tensor();
  EXPECT_EQ(released, 1);
}

TEST(Tensor, CountsWritesPerStorage) {
  const Tensor tensor = Tensor::Empty({2});
  const Tensor view = tensor.AsStrided({1}, {1}, 1);
  const std::uint64_t before = tensor.version();
  view.BumpVersion();
  EXPECT_EQ(tensor.version(), before + 1);
  const float values[] = {1, 2};
  tensor.CopyFromHost(values, sizeof(values));
  EXPECT_EQ(view.version(), before + 2);
}

TEST(Tensor, KeepsGradientsOfItsOwnShape) {
  const Tensor tensor = Tensor::Empty({2});
  EXPECT_FALSE(tensor.requires_grad());
  tensor.set_requires_grad();
  EXPECT_TRUE(tensor.requires_grad());
  EXPECT_TRUE(tensor.is_leaf());
  EXPECT_FALSE(tensor.grad().defined());
  EXPECT_ERROR(tensor.set_grad(Tensor::Empty({3})), "[2], got [3]");
  tensor.set_grad(Tensor::Empty({2}));
  EXPECT_TRUE(tensor.grad().defined());
  const Tensor detached = tensor.Detach();
  EXPECT_FALSE(detached.requires_grad());
  EXPECT_TRUE(detached.SharesStorageWith(tensor));
  EXPECT_ERROR(Iota({2}).set_requires_grad(), "int32");
}

TEST(Tensor, ConvertsItsOnlyElement) {
  EXPECT_EQ(Tensor::FromVector<std::uint8_t>({200}, {1, 1}).Item(), 200.0);
  EXPECT_EQ(Tensor::FromVector<BFloat16>({BFloat16(1.5f)}, {1}).Item(), 1.5);
  EXPECT_ERROR(Iota({2}).Item(), "one element, got shape [2]");
}

TEST(Tensor, CopiesFromAndToADevice) {
  InChildProcess([] {
    test::RegisterMockProvider();
    const Device device(DeviceType::kPrivateUse1, 1);
    const Tensor tensor = Tensor::Empty({2, 3}, DataType::kInt32, device);
    const std::vector<std::int32_t> values = {0, 1, 2, 3, 4, 5};
    tensor.CopyFromHost(values.data(), tensor.nbytes());
    EXPECT_EQ(test::MockRuntime::copies, 1);
    EXPECT_EQ(tensor.ToVector<std::int32_t>(), values);
    EXPECT_THAT(tensor.AsStrided({2, 2}, {1, 3}, 1).ToVector<std::int32_t>(),
                ElementsAreArray({1, 4, 2, 5}));
    EXPECT_THAT(tensor.AsStrided({3}, {-2}, 5).ToVector<std::int32_t>(),
                ElementsAreArray({5, 3, 1}));
    EXPECT_EQ(tensor.AsStrided({}, {}, 4).Item(), 4);
    EXPECT_EQ(test::MockRuntime::current_device, 0);
  });
}

}  // namespace
}  // namespace infini_train
