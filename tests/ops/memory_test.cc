#include <algorithm>
#include <cmath>
#include <limits>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

class MemoryTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(MemoryTest);

const std::vector<Dims> kShapes = {{}, {1}, {0}, {3, 0, 2}, {7}, {5, 3}, {1, 600}, {2, 3, 4, 5}};

/// Small numbers that every dtype holds exactly.
std::vector<double> SmallIntegers(std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i * 37 % 127);
  return values;
}

TEST_P(MemoryTest, FillSetsEveryElementAndNothingElse) {
  for (DataType dtype : kAllTypes) {
    for (Layout layout : kWritableLayouts) {
      for (const Dims& shape : kShapes) {
        Tensor out = MakeOutput(device(), dtype, shape, layout);
        Call<op::Fill>(out, Scalar(1));
        ExpectEqual(out, std::vector<double>(static_cast<std::size_t>(Numel(shape)), 1.0));
        ExpectGapsUntouched(out);
      }
    }
  }
}

TEST_P(MemoryTest, FillRoundsTheNumber) {
  Tensor half = MakeOutput(device(), DataType::kBFloat16, {3});
  Call<op::Fill>(half, Scalar(1.0 + 0x1p-8 + 0x1p-20));
  ExpectEqual(half, {1.0 + 0x1p-7, 1.0 + 0x1p-7, 1.0 + 0x1p-7});
  Tensor wide = MakeOutput(device(), DataType::kInt64, {1});
  constexpr std::int64_t kLarge = (std::int64_t{1} << 60) + 1;
  Call<op::Fill>(wide, Scalar(kLarge));
  EXPECT_EQ(wide.ToVector<std::int64_t>()[0], kLarge);
}

TEST_P(MemoryTest, CopyConvertsBetweenAllTypesAndLayouts) {
  for (DataType from : kAllTypes) {
    for (DataType to : kAllTypes) {
      for (Layout layout : kAllLayouts) {
        for (const Dims& shape : {Dims{}, Dims{0, 3}, Dims{5, 3}, Dims{3, 600}}) {
          const Tensor x = MakeTensor(device(), from, shape, SmallIntegers(Numel(shape)), layout);
          std::vector<double> expected = ToDoubles(x);
          if (to == DataType::kBool) {
            for (double& value : expected)
              value = value != 0;
          }
          const Layout out_layout = layout == Layout::kExpanded ? Layout::kSliced : layout;
          for (Layout written : {Layout::kContiguous, out_layout}) {
            Tensor out = MakeOutput(device(), to, shape, written);
            Call<op::Copy>(out, x);
            SCOPED_TRACE(testing::Message() << "from " << testing::PrintToString(from) << " "
                                            << testing::PrintToString(layout));
            ExpectEqual(out, expected);
            ExpectGapsUntouched(out);
          }
        }
      }
    }
  }
}

TEST_P(MemoryTest, CopyRoundsToNearest) {
  const std::vector<double> values = RandomValues(5000, -1000, 1000, 1);
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {5000}, values);
  for (DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    Tensor out = MakeOutput(device(), dtype, {5000});
    Call<op::Copy>(out, x);
    ExpectSameBits(out, MakeTensor(device(), dtype, {5000}, values));
    Tensor back = MakeOutput(device(), DataType::kFloat32, {5000});
    Call<op::Copy>(back, out);
    ExpectEqual(back, ToDoubles(out));
  }
}

TEST_P(MemoryTest, CopySaturatesFloatsThatAnIntegerCannotHold) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {1e30,         -1e30, infinity, -infinity,
                                      std::nan(""), -2.75, 2.75,     255};
  for (DataType from : {DataType::kFloat32, DataType::kFloat64, DataType::kBFloat16}) {
    const Tensor x = MakeTensor(device(), from, {8}, values);
    const auto copy = [&](DataType to) {
      Tensor out = MakeOutput(device(), to, {8});
      Call<op::Copy>(out, x);
      return out;
    };
    EXPECT_EQ(
        copy(DataType::kInt32).ToVector<std::int32_t>(),
        (std::vector<std::int32_t>{INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 0, -2, 2, 255}));
    EXPECT_EQ(
        copy(DataType::kInt64).ToVector<std::int64_t>(),
        (std::vector<std::int64_t>{INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, 0, -2, 2, 255}));
    EXPECT_EQ(copy(DataType::kUInt8).ToVector<std::uint8_t>(),
              (std::vector<std::uint8_t>{255, 0, 255, 0, 0, 0, 2, 255}));
    ExpectEqual(copy(DataType::kBool), {1, 1, 1, 1, 1, 1, 1, 1});
  }
}

TEST_P(MemoryTest, CopyKeepsWideIntegersAndWrapsNarrowOnes) {
  const std::vector<std::int64_t> values = {INT64_MAX, -1, (std::int64_t{1} << 53) + 1, 70000};
  Tensor x = Tensor::Empty({4}, DataType::kInt64, device());
  x.CopyFromHost(values.data(), values.size() * sizeof(std::int64_t));
  Tensor same = MakeOutput(device(), DataType::kInt64, {4}, Layout::kStepped);
  Call<op::Copy>(same, x);
  EXPECT_EQ(same.ToVector<std::int64_t>(), values);
  Tensor narrow = MakeOutput(device(), DataType::kUInt16, {4});
  Call<op::Copy>(narrow, x);
  EXPECT_EQ(narrow.ToVector<std::uint16_t>(), (std::vector<std::uint16_t>{65535, 65535, 1, 4464}));
}

TEST_P(MemoryTest, CopyPassesSpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {infinity, -infinity, std::nan(""), 1e300, 1e-300};
  const Tensor x = MakeTensor(device(), DataType::kFloat64, {5}, values);
  for (DataType dtype : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    Tensor out = MakeOutput(device(), dtype, {5});
    Call<op::Copy>(out, x);
    ExpectEqual(out, {infinity, -infinity, std::nan(""), infinity, 0});
  }
}

/// Large enough for several threads and blocks, with remainders on every side.
TEST_P(MemoryTest, CopyTransposes) {
  const Dims shape = {3, 70, 131};
  const std::vector<double> values = SmallIntegers(Numel(shape));
  for (DataType dtype :
       {DataType::kUInt8, DataType::kBFloat16, DataType::kFloat32, DataType::kFloat64}) {
    const Tensor base = MakeTensor(device(), dtype, shape, values);
    const int orders[][3] = {{0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}, {2, 0, 1}};
    for (const auto& order : orders) {
      Dims permuted_shape = shape;
      Dims permuted_strides = shape;
      for (int d = 0; d < 3; ++d) {
        permuted_shape[d] = shape[order[d]];
        permuted_strides[d] = base.strides()[order[d]];
      }
      const Tensor x = base.AsStrided(permuted_shape, permuted_strides, 0);
      std::vector<double> expected = ToDoubles(x);
      Tensor out = MakeOutput(device(), dtype, permuted_shape);
      Call<op::Copy>(out, x);
      ExpectEqual(out, expected);
      // Into a permuted view: a transposition the other way round.
      Tensor memory = MakeOutput(device(), dtype, shape);
      Tensor view = memory.AsStrided(permuted_shape, permuted_strides, 0);
      const Tensor source = MakeTensor(device(), dtype, permuted_shape, expected);
      Call<op::Copy>(view, source);
      ExpectEqual(memory, ToDoubles(base));
    }
  }
}

/// Into the first columns of wider rows, of which the rest stays, from rows at any address.
TEST_P(MemoryTest, CopyRepeatsARow) {
  struct Case {
    std::int64_t rows, columns, row_stride, offset;
  };
  // Few rows, more than lanes begin at, with gaps, too few, and rows that are not of vectors by
  // their length, distance or address.
  constexpr Case kCases[] = {{64, 16, 16, 0},  {10007, 48, 48, 0}, {1001, 48, 64, 0},
                             {63, 48, 48, 0},  {300, 41, 41, 0},   {300, 48, 51, 0},
                             {300, 48, 48, 1}, {300, 1, 16, 0}};
  for (DataType dtype :
       {DataType::kUInt8, DataType::kBFloat16, DataType::kFloat32, DataType::kFloat64}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(testing::Message() << testing::PrintToString(dtype) << " " << c.rows << " x "
                                      << c.columns << " of " << c.row_stride << " + " << c.offset);
      const std::int64_t size = c.offset + c.columns;
      const std::vector<double> values = SmallIntegers(size);
      const Tensor x = MakeTensor(device(), dtype, {size}, values);
      Tensor memory = Tensor::Empty({c.rows, c.row_stride}, dtype, device());
      Call<op::Fill>(memory, 127);
      Tensor out = memory.AsStrided({c.rows, c.columns}, {c.row_stride, 1}, 0);
      Call<op::Copy>(out, x.AsStrided(out.shape(), {0, 1}, c.offset));
      std::vector<double> expected(static_cast<std::size_t>(memory.numel()), 127.0);
      for (std::int64_t r = 0; r < c.rows; ++r)
        std::copy(values.begin() + c.offset, values.end(), expected.begin() + r * c.row_stride);
      ExpectEqual(memory, expected);
    }
  }
}

TEST_P(MemoryTest, CopyRepeatsARowAlongSeveralDimensions) {
  const Tensor x = MakeTensor(device(), DataType::kBFloat16, {32}, SmallIntegers(32));
  const Tensor repeated = x.AsStrided({9, 11, 32}, {0, 0, 1}, 0);
  for (Layout layout : kWritableLayouts) {
    Tensor out = MakeOutput(device(), DataType::kBFloat16, {9, 11, 32}, layout);
    Call<op::Copy>(out, repeated);
    ExpectEqual(out, ToDoubles(repeated));
    ExpectGapsUntouched(out);
  }
}

/// So many that a lane writes several of them on a large device.
TEST_P(MemoryTest, CopyRepeatsARowInALargeMatrix) {
  const std::int64_t rows = 150001;
  const std::int64_t columns = 256;
  const std::vector<double> values = SmallIntegers(columns);
  const Tensor x = MakeTensor(device(), DataType::kUInt8, {columns}, values);
  Tensor out = Tensor::Empty({rows, columns}, DataType::kUInt8, device());
  Call<op::Copy>(out, x.AsStrided(out.shape(), {0, 1}, 0));
  const std::vector<std::uint8_t> found = out.ToVector<std::uint8_t>();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    wrong += found[i] != values[i % static_cast<std::size_t>(columns)];
  EXPECT_EQ(wrong, 0);
}

TEST_P(MemoryTest, CopyOfALargeContiguousTensor) {
  const std::vector<double> values = SmallIntegers(300001);
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {300001}, values);
  Tensor out = MakeOutput(device(), DataType::kFloat32, {300001});
  Call<op::Copy>(out, x);
  ExpectEqual(out, values);
}

/// In tiles that blocks have to take turns at.
TEST_P(MemoryTest, CopyTransposesALargeMatrix) {
  const std::int64_t rows = 2081;
  const std::int64_t columns = 2079;
  std::vector<std::uint8_t> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  Tensor x = Tensor::Empty({rows, columns}, DataType::kUInt8, device());
  x.CopyFromHost(values.data(), values.size());
  Tensor out = Tensor::Empty({columns, rows}, DataType::kUInt8, device());
  Call<op::Copy>(out, x.AsStrided({columns, rows}, {1, columns}, 0));
  const std::vector<std::uint8_t> found = out.ToVector<std::uint8_t>();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < rows * columns; ++i)
    wrong += found[static_cast<std::size_t>(i)] !=
             values[static_cast<std::size_t>(i % rows * columns + i / rows)];
  EXPECT_EQ(wrong, 0);
}

TEST_P(MemoryTest, ArangeWithMoreElementsThanAGridHasLanes) {
  const std::int64_t count = kManyRows * 256 + 3;
  Tensor out = Tensor::Empty({count}, DataType::kUInt8, device());
  Call<op::Arange>(out, Scalar(5), Scalar(3));
  const std::vector<std::uint8_t> found = out.ToVector<std::uint8_t>();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    wrong += found[i] != static_cast<std::uint8_t>(5 + 3 * i);
  EXPECT_EQ(wrong, 0);
}

// More tensors than a kernel takes at a time, of sizes around its vectors and its blocks' parts.
TEST_P(MemoryTest, CopyAllConvertsManyTensors) {
  for (const DataType from : kFloatingTypes) {
    for (const DataType to : kFloatingTypes) {
      const bool is_parameter = from == DataType::kFloat32;
      for (const Layout layout : {Layout::kContiguous, Layout::kShifted}) {
        std::vector<Tensor> xs, outs, expected;
        for (std::int64_t i = 0; i < (is_parameter ? 150 : 10); ++i) {
          const std::int64_t size = i == 7 ? 16 * 1024 + 5 : i % 13;
          xs.push_back(MakeTensor(device(), from, {size},
                                  RandomValues(size, -8, 8, static_cast<std::uint64_t>(i)),
                                  layout));
          outs.push_back(MakeOutput(device(), to, {size}, layout));
          expected.push_back(MakeOutput(device(), to, {size}));
          Call<op::Copy>(expected.back(), xs.back());
        }
        Call<op::CopyAll>(MutableTensorList(outs), TensorList(xs));
        for (std::size_t i = 0; i < xs.size(); ++i) {
          ExpectSameBits(outs[i], expected[i]);
          ExpectGapsUntouched(outs[i]);
        }
      }
    }
  }
  Call<op::CopyAll>(MutableTensorList(), TensorList());
}

TEST_P(MemoryTest, Arange) {
  for (DataType dtype : {DataType::kFloat32, DataType::kFloat64, DataType::kBFloat16,
                         DataType::kInt64, DataType::kInt32}) {
    Tensor out = MakeOutput(device(), dtype, {5});
    Call<op::Arange>(out, Scalar(-3), Scalar(2));
    ExpectEqual(out, {-3, -1, 1, 3, 5});
  }
  Tensor real = MakeOutput(device(), DataType::kFloat64, {4});
  Call<op::Arange>(real, Scalar(0.5), Scalar(-0.25));
  ExpectEqual(real, {0.5, 0.25, 0, -0.25});
  Tensor wide = MakeOutput(device(), DataType::kInt64, {2});
  constexpr std::int64_t kStart = (std::int64_t{1} << 53) + 1;
  Call<op::Arange>(wide, Scalar(kStart), Scalar(1));
  EXPECT_EQ(wide.ToVector<std::int64_t>(), (std::vector<std::int64_t>{kStart, kStart + 1}));
  Tensor empty = MakeOutput(device(), DataType::kFloat32, {0});
  Call<op::Arange>(empty, Scalar(0), Scalar(1));
}

TEST_P(MemoryTest, MoreElementsThan32BitsCount) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 33;
  const DeviceGuardImpl& guard = GetDeviceGuardImpl(device().type());
  if (!HasKernel(device().type(), OpId::kFill)) GTEST_SKIP() << "Fill falls back to the CPU";
  if (guard.Properties(device().index()).free_memory < std::size_t{4} << 30)
    GTEST_SKIP() << "expected 4 GiB of free memory";
  {
    Tensor out = Tensor::Empty({kCount}, DataType::kUInt8, device());
    Call<op::Fill>(out, 7);
    ExpectEqual(out.AsStrided({64}, {1}, kCount - 64), std::vector<double>(64, 7.0));
    // Two elements that a 32-bit stride does not lead to.
    Tensor sparse = out.AsStrided({2}, {kCount - 1}, 0);
    Call<op::Fill>(sparse, 9);
    ExpectEqual(out.AsStrided({4}, {1}, kCount - 4), {7, 7, 7, 9});
  }
  allocator::EmptyCache(device());
}

}  // namespace
}  // namespace infini_train::test
