#include "infini_train/conformance/trial.h"

#include <algorithm>

#include "infini_train/core/storage.h"

namespace infini_train::conformance {
namespace {

/// Bytes of the distinct elements of a tensor: those of an expanded dimension count once.
std::size_t DistinctBytes(const Tensor& tensor) {
  std::size_t bytes = SizeOf(tensor.dtype());
  for (int d = 0; d < tensor.rank(); ++d)
    if (tensor.strides()[d] != 0) bytes *= static_cast<std::size_t>(tensor.size(d));
  return bytes;
}

}  // namespace

Tensor Trial::Make(const Dims& shape, Role role, DataType fixed_dtype, Layout layout,
                   const std::function<std::vector<double>()>& values, bool written) {
  if (is_reference_) return items_.at(next_++).reference;
  const auto dtype_of = [&](DataType data) {
    if (role == Role::kFixed) return fixed_dtype;
    if (role == Role::kData) return data;
    return data == DataType::kFloat64 ? data : DataType::kFloat32;
  };
  Item item;
  item.written = written;
  const DataType actual = dtype_of(setting_.dtype);
  const DataType reference = dtype_of(reference_dtype());
  if (values) {
    item.actual = MakeTensor(setting_.device, actual, shape, values(), layout);
    if (setting_.has_reference)
      item.reference = MakeTensor({}, reference, shape, ToDoubles(item.actual));
  } else {
    item.actual = MakeOutput(setting_.device, actual, shape, layout);
    if (setting_.has_reference) item.reference = MakeOutput({}, reference, shape);
  }
  least_bytes_ += DistinctBytes(item.actual) * (values && written ? 2 : 1);
  items_.push_back(item);
  return item.actual;
}

std::vector<double> Trial::DrawValues(const Dims& shape, double low, double high) const {
  const std::uint64_t seed = items_.size();
  std::vector<double> values;
  switch (setting_.dtype) {
    case DataType::kBool:
      values = RandomValues(Numel(shape), -1, 1, seed);
      for (double& value : values)
        value = value > 0;
      return values;
    case DataType::kUInt8:
    case DataType::kUInt16:
      return RandomValues(Numel(shape), 0, 12, seed);
    case DataType::kInt32:
    case DataType::kInt64:
      return RandomValues(Numel(shape), -12, 12, seed);
    default:
      return RandomValues(Numel(shape), low, high, seed);
  }
}

Tensor Trial::Input(const Dims& shape, double low, double high) {
  return Make(
      shape, Role::kData, {}, setting_.layout, [&] { return DrawValues(shape, low, high); }, false);
}

Tensor Trial::StatInput(const Dims& shape, double low, double high) {
  return Make(
      shape, Role::kStat, {}, Layout::kContiguous,
      [&, seed = items_.size()] { return RandomValues(Numel(shape), low, high, seed); }, false);
}

Tensor Trial::DataValues(const Dims& shape, const std::vector<double>& values) {
  return Make(
      shape, Role::kData, {}, Layout::kContiguous, [&] { return values; }, false);
}

Tensor Trial::StatValues(const Dims& shape, const std::vector<double>& values) {
  return Make(
      shape, Role::kStat, {}, Layout::kContiguous, [&] { return values; }, false);
}

Tensor Trial::FixedValues(const Dims& shape, DataType dtype, const std::vector<double>& values) {
  return Make(
      shape, Role::kFixed, dtype, Layout::kContiguous, [&] { return values; }, false);
}

Tensor Trial::Indices(const Dims& shape, std::int64_t limit) {
  return Make(
      shape, Role::kFixed, DataType::kInt64, Layout::kContiguous,
      [&, seed = items_.size()] {
        std::vector<double> values =
            RandomValues(Numel(shape), 0, static_cast<double>(limit), seed + 1000);
        for (double& value : values)
          value = std::min(static_cast<double>(limit - 1),
                           static_cast<double>(static_cast<std::int64_t>(value)));
        return values;
      },
      false);
}

Tensor Trial::Mask(const Dims& shape) {
  return Make(
      shape, Role::kFixed, DataType::kBool, setting_.layout,
      [&, seed = items_.size()] {
        std::vector<double> values = RandomValues(Numel(shape), -1, 1, seed + 2000);
        for (double& value : values)
          value = value > 0;
        return values;
      },
      false);
}

Tensor Trial::Output(const Dims& shape) {
  return Make(shape, Role::kData, {}, writable_layout(), nullptr, true);
}

Tensor Trial::FixedOutput(const Dims& shape, DataType dtype) {
  return Make(shape, Role::kFixed, dtype, writable_layout(), nullptr, true);
}

Tensor Trial::StatOutput(const Dims& shape) {
  return Make(shape, Role::kStat, {}, Layout::kContiguous, nullptr, true);
}

Tensor Trial::InOut(const Dims& shape, double low, double high) {
  return Make(
      shape, Role::kData, {}, writable_layout(), [&] { return DrawValues(shape, low, high); },
      true);
}

Tensor Trial::StatInOut(const Dims& shape, double low, double high) {
  return Make(
      shape, Role::kStat, {}, Layout::kContiguous,
      [&, seed = items_.size()] { return RandomValues(Numel(shape), low, high, seed); }, true);
}

Tensor Trial::Master(const Tensor& parameter) {
  if (is_reference_ || SizeOf(setting_.dtype) >= 4) return {};
  // The reference updates the parameter itself: the float64 copy of what both start from.
  Item item;
  item.written = true;
  item.actual =
      MakeTensor(setting_.device, DataType::kFloat32, parameter.shape(), ToDoubles(parameter));
  for (const Item& other : items_)
    if (other.actual.IsSameAs(parameter)) item.reference = other.reference;
  least_bytes_ += 2 * item.actual.nbytes();
  masters_.push_back(item);
  return item.actual;
}

void Trial::BecomeReference() {
  is_reference_ = true;
  next_ = 0;
}

std::vector<Trial::Comparison> Trial::Comparisons() const {
  std::vector<Comparison> result;
  for (const Item& item : items_)
    if (item.written) result.push_back({item.actual, item.reference});
  for (const Item& item : masters_)
    result.push_back({item.actual, item.reference});
  return result;
}

}  // namespace infini_train::conformance
