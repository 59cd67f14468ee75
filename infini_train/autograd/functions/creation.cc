#include <fmt/format.h>

#include <cmath>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

std::int64_t ArangeLength(Scalar start, Scalar end, Scalar step) {
  const double real_step = step.To<double>();
  if (real_step == 0 || !std::isfinite(real_step)) {
    throw Error(fmt::format("Arange: expected a step other than 0, got {}", real_step));
  }
  if (start.is_integer() && end.is_integer() && step.is_integer()) {
    // Exact, also where the distance does not fit a signed number.
    const auto first = start.To<std::int64_t>();
    const auto last = end.To<std::int64_t>();
    const auto stride = step.To<std::int64_t>();
    if (stride > 0 ? first >= last : first <= last) return 0;
    const auto low = static_cast<std::uint64_t>(stride > 0 ? first : last);
    const auto high = static_cast<std::uint64_t>(stride > 0 ? last : first);
    const std::uint64_t magnitude =
        stride > 0 ? static_cast<std::uint64_t>(stride) : 0 - static_cast<std::uint64_t>(stride);
    return static_cast<std::int64_t>((high - low - 1) / magnitude + 1);
  }
  const double length = std::ceil((end.To<double>() - start.To<double>()) / real_step);
  constexpr double kLimit = 0x1p62;
  if (!(length < kLimit)) {
    throw Error(fmt::format("Arange: [{}, {}) in steps of {} has no finite length",
                            start.To<double>(), end.To<double>(), real_step));
  }
  return length <= 0 ? 0 : static_cast<std::int64_t>(length);
}

}  // namespace

Tensor Full(const Dims& shape, Scalar value, DataType dtype, Device device) {
  Tensor result = Tensor::Empty(shape, dtype, device);
  Call<op::Fill>(result, value);
  return result;
}

Tensor Zeros(const Dims& shape, DataType dtype, Device device) {
  return raw::Zeros(shape, dtype, device);
}

Tensor Ones(const Dims& shape, DataType dtype, Device device) {
  return Full(shape, Scalar(1), dtype, device);
}

Tensor ZerosLike(const Tensor& x) {
  return raw::Zeros(x.shape(), x.dtype(), x.device());
}

Tensor Arange(Scalar start, Scalar end, Scalar step, DataType dtype, Device device) {
  if (!IsFloatingPoint(dtype) && !(start.is_integer() && step.is_integer())) {
    detail::ThrowUnsupportedDataType("Arange", dtype, "a floating type for a real start or step");
  }
  Tensor result = Tensor::Empty({ArangeLength(start, end, step)}, dtype, device);
  Call<op::Arange>(result, start, step);
  return result;
}

Tensor Uniform(const Dims& shape, double low, double high, DataType dtype, Device device,
               Generator* generator) {
  if (!IsFloatingPoint(dtype)) {
    detail::ThrowUnsupportedDataType("Uniform", dtype, "a floating type");
  }
  if (!(low <= high)) {
    throw Error(fmt::format("Uniform: expected low <= high, got [{}, {})", low, high));
  }
  Tensor result = Tensor::Empty(shape, dtype, device);
  Call<op::RandomUniform>(result, low, high, detail::NextRandomState(generator, device));
  return result;
}

Tensor Normal(const Dims& shape, double mean, double stddev, DataType dtype, Device device,
              Generator* generator) {
  if (!IsFloatingPoint(dtype)) {
    detail::ThrowUnsupportedDataType("Normal", dtype, "a floating type");
  }
  if (!(stddev >= 0)) {
    throw Error(fmt::format("Normal: expected a standard deviation >= 0, got {}", stddev));
  }
  Tensor result = Tensor::Empty(shape, dtype, device);
  Call<op::RandomNormal>(result, mean, stddev, detail::NextRandomState(generator, device));
  return result;
}

Tensor RandomInt(const Dims& shape, std::int64_t low, std::int64_t high, DataType dtype,
                 Device device, Generator* generator) {
  if (dtype != DataType::kInt64 && dtype != DataType::kInt32) {
    detail::ThrowUnsupportedDataType("RandomInt", dtype, "int64 or int32");
  }
  if (low >= high) {
    throw Error(fmt::format("RandomInt: expected low < high, got [{}, {})", low, high));
  }
  Tensor result = Tensor::Empty(shape, dtype, device);
  Call<op::RandomInt>(result, low, high, detail::NextRandomState(generator, device));
  return result;
}

}  // namespace infini_train
