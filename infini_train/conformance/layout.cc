#include "infini_train/conformance/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "infini_train/core/error.h"
#include "infini_train/core/philox.h"
#include "infini_train/core/storage.h"

namespace infini_train::conformance {
namespace {

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
    case Layout::kShifted:
      placement.offset = 1;
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

/// Calls `body(flat, position)` for each element in row-major order, `position` being its place in
/// the storage.
template <typename Body>
void ForEachElement(const Dims& shape, const Dims& strides, std::int64_t offset, const Body& body) {
  Dims index = Dims::Filled(shape.size(), 0);
  const std::int64_t count = Numel(shape);
  std::int64_t position = offset;
  for (std::int64_t flat = 0; flat < count; ++flat) {
    body(static_cast<std::size_t>(flat), static_cast<std::size_t>(position));
    for (int d = shape.size() - 1; d >= 0; --d) {
      position += strides[d];
      if (++index[d] < shape[d]) break;
      position -= shape[d] * strides[d];
      index[d] = 0;
    }
  }
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

/// Not vector<T>: a vector of bool is packed.
template <typename T>
void Put(std::vector<std::byte>& bytes, std::size_t position, T value) {
  std::memcpy(bytes.data() + position * sizeof(T), &value, sizeof(T));
}

template <typename T>
Tensor Build(Device device, const Dims& shape, const std::vector<double>* values, Layout layout) {
  const Placement placement = Place(shape, layout);
  std::vector<std::byte> bytes(static_cast<std::size_t>(placement.storage_size) * sizeof(T));
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i)
    Put(bytes, i, Junk<T>());
  if (values != nullptr) {
    const bool first_slice_only = layout == Layout::kExpanded && shape.size() > 0 && shape[0] > 0;
    const auto first_slice = static_cast<std::size_t>(
        first_slice_only ? Numel(shape) / shape[0] : std::numeric_limits<std::int64_t>::max());
    ForEachElement(shape, placement.strides, placement.offset,
                   [&](std::size_t flat, std::size_t position) {
                     if (flat < first_slice) Put(bytes, position, FromDouble<T>((*values)[flat]));
                   });
  }
  const Tensor memory = Tensor::Empty({placement.storage_size}, DataTypeOf<T>(), device);
  memory.CopyFromHost(bytes.data(), bytes.size());
  return memory.AsStrided(shape, placement.strides, placement.offset);
}

}  // namespace

std::string_view ToString(Layout layout) {
  static constexpr std::string_view kNames[] = {"contiguous", "shifted", "transposed",
                                                "sliced",     "stepped", "expanded"};
  return kNames[static_cast<int>(layout)];
}

Tensor MakeTensor(Device device, DataType dtype, const Dims& shape,
                  const std::vector<double>& values, Layout layout) {
  if (static_cast<std::int64_t>(values.size()) != Numel(shape)) {
    throw Error(fmt::format("MakeTensor: expected {} values for shape {}, got {}", Numel(shape),
                            shape.ToString(), values.size()));
  }
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

std::vector<double> RandomValues(std::int64_t count, double low, double high, std::uint64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * UniformFromBits(Philox4x32(seed, 0, i)[0]);
  return values;
}

bool GapsAreUntouched(const Tensor& tensor) {
  return DispatchAll("GapsAreUntouched", tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Tensor memory = tensor.AsStrided(
        {static_cast<std::int64_t>(tensor.storage()->bytes() / sizeof(T))}, {1}, 0);
    std::vector<std::byte> bytes(memory.nbytes());
    memory.CopyToHost(bytes.data());
    const T junk = Junk<T>();
    ForEachElement(tensor.shape(), tensor.strides(), tensor.offset(),
                   [&](std::size_t, std::size_t position) { Put(bytes, position, junk); });
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(T))
      if (std::memcmp(bytes.data() + i, &junk, sizeof(T)) != 0) return false;
    return true;
  });
}

}  // namespace infini_train::conformance
