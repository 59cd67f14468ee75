#include "tests/common/device_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "infini_train/core/philox.h"
#include "infini_train/core/storage.h"

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

namespace test {
namespace {

Device device_under_test;

/// Where the elements of a tensor lie in its storage, which holds `storage_size` elements.
struct Placement {
  Dims strides;
  std::int64_t offset = 0;
  std::int64_t storage_size = 0;
};

Placement Place(const Dims& shape, Layout layout) {
  const int rank = shape.size();
  Dims extents = shape;
  Placement placement;
  switch (layout) {
    case Layout::kContiguous:
      break;
    case Layout::kTransposed:
      if (rank >= 2) std::swap(extents[rank - 1], extents[rank - 2]);
      break;
    case Layout::kSliced:
      placement.offset = 3;
      if (rank >= 1) extents[rank - 1] += 5;
      break;
    case Layout::kStepped:
      placement.offset = 1;
      if (rank >= 1) extents[rank - 1] *= 2;
      break;
    case Layout::kExpanded:
      if (rank >= 1) extents[0] = std::min<std::int64_t>(extents[0], 1);
      break;
    case Layout::kShifted:
      placement.offset = 1;
      break;
  }
  placement.strides = ContiguousStrides(extents);
  placement.storage_size = placement.offset + Numel(extents);
  if (layout == Layout::kTransposed && rank >= 2) {
    std::swap(placement.strides[rank - 1], placement.strides[rank - 2]);
  } else if (layout == Layout::kStepped && rank >= 1) {
    placement.strides[rank - 1] = 2;
  } else if (layout == Layout::kExpanded && rank >= 1) {
    placement.strides[0] = 0;
  }
  return placement;
}

template <typename T>
T Junk() {
  if constexpr (std::is_same_v<T, bool>) {
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(0xA5A5A5A5A5A5A5A5u);
  } else {
    return static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  }
}

/// As a C++ conversion would, in one step of rounding.
template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_same_v<T, double> || std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

template <typename T>
Tensor Build(Device device, const Dims& shape, const std::vector<double>* values, Layout layout) {
  const Placement placement = Place(shape, layout);
  std::vector<T> buffer;
  buffer.assign(static_cast<std::size_t>(placement.storage_size), Junk<T>());
  if (values != nullptr) {
    ForEachIndex(shape, [&](std::int64_t flat, const Dims& index) {
      if (layout == Layout::kExpanded && !index.empty() && index[0] != 0) return;
      std::int64_t position = placement.offset;
      for (int d = 0; d < index.size(); ++d)
        position += index[d] * placement.strides[d];
      buffer[static_cast<std::size_t>(position)] =
          FromDouble<T>((*values)[static_cast<std::size_t>(flat)]);
    });
  }
  const Tensor memory = Tensor::Empty({placement.storage_size}, DataTypeOf<T>(), device);
  // Not vector::data(): a vector of bool is packed.
  std::vector<std::byte> bytes(buffer.size() * sizeof(T));
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    const T value = buffer[i];
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  memory.CopyFromHost(bytes.data(), bytes.size());
  return memory.AsStrided(shape, placement.strides, placement.offset);
}

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

void PrintTo(Layout layout, std::ostream* out) {
  static constexpr const char* kNames[] = {"contiguous", "transposed", "sliced",
                                           "stepped",    "expanded",   "shifted"};
  *out << kNames[static_cast<int>(layout)];
}

std::vector<double> RandomValues(std::int64_t count, double low, double high, std::uint64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * UniformFromBits(Philox4x32(seed, 0, i)[0]);
  return values;
}

Tensor MakeTensor(Device device, DataType dtype, const Dims& shape,
                  const std::vector<double>& values, Layout layout) {
  EXPECT_EQ(static_cast<std::int64_t>(values.size()), Numel(shape));
  return DispatchAll("MakeTensor", dtype, [&](auto tag) {
    return Build<typename decltype(tag)::type>(device, shape, &values, layout);
  });
}

Tensor MakeOutput(Device device, DataType dtype, const Dims& shape, Layout layout) {
  return DispatchAll("MakeOutput", dtype, [&](auto tag) {
    return Build<typename decltype(tag)::type>(device, shape, nullptr, layout);
  });
}

std::vector<double> ToDoubles(const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.nbytes());
  tensor.CopyToHost(bytes.data());
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  DispatchAll("ToDoubles", tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = static_cast<double>(value);
    }
  });
  return values;
}

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
  DispatchAll("ExpectGapsUntouched", tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Tensor memory = tensor.AsStrided(
        {static_cast<std::int64_t>(tensor.storage()->bytes() / sizeof(T))}, {1}, 0);
    std::vector<std::byte> bytes(memory.nbytes());
    memory.CopyToHost(bytes.data());
    const T junk = Junk<T>();
    ForEachIndex(tensor.shape(), [&](std::int64_t, const Dims& index) {
      std::int64_t position = tensor.offset();
      for (int d = 0; d < index.size(); ++d)
        position += index[d] * tensor.strides()[d];
      std::memcpy(bytes.data() + static_cast<std::size_t>(position) * sizeof(T), &junk, sizeof(T));
    });
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      ASSERT_EQ(std::memcmp(bytes.data() + i, &junk, sizeof(T)), 0)
          << "element " << i / sizeof(T) << " of the storage was written";
    }
  });
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
