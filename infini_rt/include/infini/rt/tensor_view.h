#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <infini/rt/data_type.h>
#include <infini/rt/device.h>
#include <infini/rt/export.h>
#include <infini/rt/inline_vector.h>

namespace infini::rt {

/// A non-owning view of a strided array in some device's memory: a pointer, a shape, strides in
/// elements, an element type and a device. Shape and strides are the view's own, so a copy stays
/// valid for as long as the memory does. Up to rank 8 nothing is allocated.
class TensorView {
 public:
  using Size = std::size_t;
  using Stride = std::ptrdiff_t;
  using Shape = InlineVector<Size, 8>;
  using Strides = InlineVector<Stride, 8>;

  /// A row-major view. `shape` empty is a scalar.
  INFINI_RT_API TensorView(void* data, Shape shape, DataType dtype = DataType::kFloat32,
                           Device device = {});

  /// A view with explicit strides in elements, which may be 0 (broadcast) or negative. Throws
  /// `std::invalid_argument` if `strides` and `shape` differ in length.
  INFINI_RT_API TensorView(void* data, Shape shape, DataType dtype, Device device, Strides strides);

  void* data() const { return data_; }
  DataType dtype() const { return dtype_; }
  Device device() const { return device_; }
  std::span<const Size> shape() const& { return shape_; }
  std::span<const Stride> strides() const& { return strides_; }
  Shape shape() && { return std::move(shape_); }
  Strides strides() && { return std::move(strides_); }

  std::size_t ndim() const { return shape_.size(); }
  std::size_t element_size() const { return SizeOf(dtype_); }
  /// The number of elements: the product of the sizes, 1 for a scalar.
  INFINI_RT_API std::size_t numel() const;

  /// Size and stride of an axis; a negative axis counts from the end. Both throw
  /// `std::out_of_range` outside [-ndim, ndim).
  Size size(std::ptrdiff_t axis) const { return shape_[Axis(axis)]; }
  Stride stride(std::ptrdiff_t axis) const { return strides_[Axis(axis)]; }

  /// The sub-view at `index` of axis 0; throws `std::out_of_range` past the end or on a scalar.
  INFINI_RT_API TensorView operator[](Size index) const;
  /// The matrix transpose, a view; throws `std::invalid_argument` unless the rank is 2.
  INFINI_RT_API TensorView T() const;

  /// Whether the elements lie in row-major order without gaps. Strides of axes of size 1 do not
  /// matter, and a view without elements is contiguous.
  INFINI_RT_API bool IsContiguous() const;
  /// Whether some axis of size above 1 has stride 0.
  INFINI_RT_API bool HasBroadcastDim() const;
  /// Type, shape, strides and device as text; the data are never read.
  INFINI_RT_API std::string ToString() const;

  /// Same pointer, shape, strides, type and device.
  friend bool operator==(const TensorView&, const TensorView&) = default;

 private:
  INFINI_RT_API std::size_t Axis(std::ptrdiff_t axis) const;

  void* data_;
  Shape shape_;
  Strides strides_;
  DataType dtype_;
  Device device_;
};

}  // namespace infini::rt
