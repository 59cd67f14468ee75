#include "tests/common/device_test.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace infini_train {

void PrintTo(Device device, std::ostream* out) {
  *out << device.ToString();
}
void PrintTo(DataType dtype, std::ostream* out) {
  *out << ToString(dtype);
}
void PrintTo(const Dims& dims, std::ostream* out) {
  *out << dims.ToString();
}

void conformance::PrintTo(Layout layout, std::ostream* out) {
  *out << ToString(layout);
}

namespace test {
namespace {

Device device_under_test;

double LargestFinite(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return 65504;
    case DataType::kBFloat16:
      return 0x1.FEp127;
    case DataType::kFloat32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

double SmallestSubnormal(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return 0x1p-24;
    case DataType::kBFloat16:
      return 0x1p-133;
    case DataType::kFloat32:
      return 0x1p-149;
    case DataType::kFloat64:
      return 0x1p-1074;
    default:
      return 0;
  }
}

template <typename BoundAt>
void ExpectWithin(const Tensor& actual, const std::vector<double>& expected,
                  const BoundAt& bound_at) {
  const std::vector<double> values = ToDoubles(actual);
  ASSERT_EQ(values.size(), expected.size()) << "shape " << actual.shape().ToString();
  const double largest = LargestFinite(actual.dtype());
  int failures = 0;
  for (std::size_t i = 0; i < values.size() && failures < 5; ++i) {
    const double found = values[i];
    const double wanted = expected[i];
    bool good = found == wanted || (std::isnan(found) && std::isnan(wanted));
    double bound = 0;
    if (!good && std::isfinite(wanted)) {
      bound = bound_at(i, wanted);
      good = std::isfinite(found) ? std::fabs(found - wanted) <= bound
                                  : std::isinf(found) && std::fabs(wanted) + bound >= largest &&
                                        std::signbit(found) == std::signbit(wanted);
    }
    if (good) continue;
    ++failures;
    ADD_FAILURE() << "element " << i << " of " << actual.shape().ToString() << " "
                  << ToString(actual.dtype()) << ": expected " << wanted << " +- " << bound
                  << ", got " << found << " (off by " << std::fabs(found - wanted) << ")";
  }
}

}  // namespace

std::int64_t FlatIndex(const Dims& shape, const Dims& index) {
  std::int64_t flat = 0;
  for (int d = 0; d < shape.size(); ++d)
    flat = flat * shape[d] + index[d];
  return flat;
}

double UnitRoundoff(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return 0x1p-11;
    case DataType::kBFloat16:
      return 0x1p-8;
    case DataType::kFloat32:
      return 0x1p-24;
    case DataType::kFloat64:
      return 0x1p-53;
    default:
      return 0;
  }
}

double Tolerance::Bound(DataType dtype, double expected) const {
  const double computing = UnitRoundoff(dtype == DataType::kFloat64 ? dtype : compute);
  const double magnitude = std::max(std::fabs(expected), scale);
  return UnitRoundoff(dtype) * std::fabs(expected) + operations * computing * magnitude +
         SmallestSubnormal(dtype);
}

void ExpectClose(const Tensor& actual, const std::vector<double>& expected, Tolerance tolerance) {
  ExpectWithin(actual, expected,
               [&](std::size_t, double wanted) { return tolerance.Bound(actual.dtype(), wanted); });
}

void ExpectClose(const Tensor& actual, const std::vector<double>& expected, Tolerance tolerance,
                 const std::vector<double>& scales) {
  ASSERT_EQ(scales.size(), expected.size());
  ExpectWithin(actual, expected, [&](std::size_t i, double wanted) {
    tolerance.scale = scales[i];
    return tolerance.Bound(actual.dtype(), wanted);
  });
}

void ExpectEqual(const Tensor& actual, const std::vector<double>& expected) {
  ExpectWithin(actual, expected, [](std::size_t, double) { return 0.0; });
}

void ExpectGapsUntouched(const Tensor& tensor) {
  EXPECT_TRUE(conformance::GapsAreUntouched(tensor)) << "memory between the elements was written";
}

void ExpectSameBits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape(), b.shape());
  std::vector<std::byte> first(a.nbytes());
  std::vector<std::byte> second(b.nbytes());
  a.CopyToHost(first.data());
  b.CopyToHost(second.data());
  EXPECT_TRUE(first == second) << "the bits differ";
}

std::vector<Device> DevicesUnderTest(DeviceType type) {
  if (device_under_test.type() != type) return {};
  return {device_under_test};
}

void SetDeviceUnderTest(Device device) {
  device_under_test = device;
}

}  // namespace test
}  // namespace infini_train
