#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

/// Test tensors in every layout that a kernel may meet, on any device, without needing a kernel of
/// that device.
namespace infini_train::conformance {

/// How a tensor lies in memory; the memory between its elements holds junk (NaN where the dtype has
/// it).
enum class Layout : std::uint8_t {
  kContiguous,
  kShifted,     ///< row-major without gaps, one element behind an aligned address
  kTransposed,  ///< the last two dimensions are swapped in memory
  kSliced,      ///< a slice of a larger row-major array: an offset and gaps between rows
  kStepped,     ///< every second element of the last dimension
  kExpanded,    ///< stride 0 in the first dimension (all its slices are one)
};

INFINI_TRAIN_API std::string_view ToString(Layout layout);

/// A tensor of `values` (row-major, converted to `dtype` in one rounding) in a layout. For
/// kExpanded only the values of the first slice count. Throws Error when there are not Numel(shape)
/// values.
INFINI_TRAIN_API Tensor MakeTensor(Device device, DataType dtype, const Dims& shape,
                                   const std::vector<double>& values,
                                   Layout layout = Layout::kContiguous);

/// A tensor to be written: junk everywhere.
INFINI_TRAIN_API Tensor MakeOutput(Device device, DataType dtype, const Dims& shape,
                                   Layout layout = Layout::kContiguous);

/// Any tensor's elements, row-major, copied to the host.
INFINI_TRAIN_API std::vector<double> ToDoubles(const Tensor& tensor);

/// `count` reproducible numbers, uniform in [low, high).
INFINI_TRAIN_API std::vector<double> RandomValues(std::int64_t count, double low, double high,
                                                  std::uint64_t seed);

/// Whether the memory between the elements of a tensor of MakeTensor or MakeOutput still is junk.
INFINI_TRAIN_API bool GapsAreUntouched(const Tensor& tensor);

}  // namespace infini_train::conformance
