#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <tuple>
#include <vector>

#include "infini_train/conformance/layout.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"

namespace infini_train {

// Found by GoogleTest when it prints parameters and values.
void PrintTo(Device device, std::ostream* out);
void PrintTo(DataType dtype, std::ostream* out);
void PrintTo(const Dims& dims, std::ostream* out);
namespace conformance {
void PrintTo(Layout layout, std::ostream* out);
}

namespace test {

// Tensors in every layout, as the conformance check makes them.
using conformance::Layout;
using conformance::MakeOutput;
using conformance::MakeTensor;
using conformance::RandomValues;
using conformance::ToDoubles;

/// The layouts that a tensor which is written may have: all but kExpanded.
inline constexpr Layout kWritableLayouts[] = {Layout::kContiguous, Layout::kTransposed,
                                              Layout::kSliced, Layout::kStepped, Layout::kShifted};
inline constexpr Layout kAllLayouts[] = {Layout::kContiguous, Layout::kTransposed,
                                         Layout::kSliced,     Layout::kStepped,
                                         Layout::kExpanded,   Layout::kShifted};
/// Lengths of rows that break kernels: about a group of lanes, beyond a block, vocabularies.
inline constexpr std::int64_t kRowLengths[] = {1, 31, 32, 33, 63, 64, 65, 1000, 50257, 128256};
/// More than the blocks that a grid of the emulator has in a dimension.
inline constexpr std::int64_t kManyRows = 65537;
inline constexpr DataType kFloatingTypes[] = {DataType::kFloat32, DataType::kFloat64,
                                              DataType::kFloat16, DataType::kBFloat16};
inline constexpr DataType kAllTypes[] = {
    DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
    DataType::kBFloat16, DataType::kBool,    DataType::kInt64,
    DataType::kInt32,    DataType::kUInt8,   DataType::kUInt16};

/// Calls `body(flat, index)` for each index into `shape`, in row-major order.
template <typename Body>
void ForEachIndex(const Dims& shape, const Body& body) {
  Dims index = Dims::Filled(shape.size(), 0);
  const std::int64_t count = Numel(shape);
  for (std::int64_t flat = 0; flat < count; ++flat) {
    body(flat, index);
    for (int d = shape.size() - 1; d >= 0 && ++index[d] == shape[d]; --d)
      index[d] = 0;
  }
}

/// Row-major position of an index.
std::int64_t FlatIndex(const Dims& shape, const Dims& index);

/// Half the distance of 1 to the next number of the dtype; 0 for integers.
double UnitRoundoff(DataType dtype);

/// The rounding error that a correct kernel may make in one result. With u the unit roundoff of the
/// dtype and c that of the type it computes in (float for the half types), a result may be off by
///
///   u |result|                       rounding once to the stored type, plus
///   operations * c * magnitude       rounding each of a chain or sum of `operations` steps whose
///                                    intermediate values are at most `magnitude` (the standard
///                                    bound n u sum |terms| of a recursive sum), plus
///   the smallest subnormal           of the dtype.
///
/// `magnitude` is max(|result|, `scale`): for a sum, `scale` is the sum of the |terms|. A function
/// of the C library or of math.h counts as 5 operations.
struct Tolerance {
  double operations = 1;
  double scale = 0;
  /// The type computed in, for results that are not float64; a half type where intermediate values
  /// are stored in it.
  DataType compute = DataType::kFloat32;

  double Bound(DataType dtype, double expected) const;
};

/// Expects each element to be within the tolerance of the reference; NaN matches NaN, infinity only
/// itself (a finite reference beyond the largest finite number of the dtype matches infinity).
void ExpectClose(const Tensor& actual, const std::vector<double>& expected, Tolerance tolerance);
/// With one scale for each element in place of tolerance.scale.
void ExpectClose(const Tensor& actual, const std::vector<double>& expected, Tolerance tolerance,
                 const std::vector<double>& scales);
/// Expects equal numbers (NaN matches NaN, -0 matches 0).
void ExpectEqual(const Tensor& actual, const std::vector<double>& expected);
/// Expects that nothing was written between the elements of a tensor of MakeOutput or MakeTensor.
void ExpectGapsUntouched(const Tensor& tensor);
/// Expects the same dtype, shape and bits.
void ExpectSameBits(const Tensor& a, const Tensor& b);

}  // namespace test

/// Base of suites that must hold on every device.
class DeviceTest : public ::testing::TestWithParam<Device> {
 protected:
  static Device device() { return GetParam(); }
};

/// Base of suites that must hold on every device for each of some values.
template <typename T>
class DeviceTestWith : public ::testing::TestWithParam<std::tuple<Device, T>> {
 protected:
  static Device device() {
    return std::get<0>(::testing::TestWithParam<std::tuple<Device, T>>::GetParam());
  }
  static const T& value() {
    return std::get<1>(::testing::TestWithParam<std::tuple<Device, T>>::GetParam());
  }
};

namespace test {

/// The devices of a kind that this program tests: one for the kind under test, none for the others.
std::vector<Device> DevicesUnderTest(DeviceType type);

/// Chooses the device under test before GoogleTest starts; without a call it is the CPU.
void SetDeviceUnderTest(Device device);

}  // namespace test

/// Instantiates a suite derived from DeviceTest as `CPU/Suite`, `CUDA/Suite` and
/// `PRIVATEUSE1/Suite`. Which of them have tests is up to the program that the object is linked
/// into: the shared suites are compiled once for all devices.
#define INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Suite)                  \
  INSTANTIATE_TEST_SUITE_P(CPU, Suite, INFINI_TRAIN_DEVICES(kCPU));   \
  INSTANTIATE_TEST_SUITE_P(CUDA, Suite, INFINI_TRAIN_DEVICES(kCUDA)); \
  INSTANTIATE_TEST_SUITE_P(PRIVATEUSE1, Suite, INFINI_TRAIN_DEVICES(kPrivateUse1))

/// The same for a suite derived from DeviceTestWith: `values` is a GoogleTest generator, and
/// `name_of` gives the name of each of them.
#define INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE_WITH(Suite, values, name_of)                       \
  INSTANTIATE_TEST_SUITE_P(CPU, Suite, ::testing::Combine(INFINI_TRAIN_DEVICES(kCPU), values),   \
                           name_of);                                                             \
  INSTANTIATE_TEST_SUITE_P(CUDA, Suite, ::testing::Combine(INFINI_TRAIN_DEVICES(kCUDA), values), \
                           name_of);                                                             \
  INSTANTIATE_TEST_SUITE_P(                                                                      \
      PRIVATEUSE1, Suite, ::testing::Combine(INFINI_TRAIN_DEVICES(kPrivateUse1), values), name_of)

#define INFINI_TRAIN_DEVICES(kind) \
  ::testing::ValuesIn(::infini_train::test::DevicesUnderTest(::infini_train::DeviceType::kind))

}  // namespace infini_train
