#include <infini/rt/tensor_view.h>

#include <stdexcept>
#include <utility>

namespace infini::rt {
namespace {

TensorView::Strides RowMajor(const TensorView::Shape& shape) {
  TensorView::Strides strides(shape.size());
  TensorView::Stride stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= static_cast<TensorView::Stride>(shape[i]);
  }
  return strides;
}

template <typename Values>
std::string List(const Values& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + "]";
}

}  // namespace

TensorView::TensorView(void* data, Shape shape, DataType dtype, Device device)
    : data_(data),
      shape_(std::move(shape)),
      strides_(RowMajor(shape_)),
      dtype_(dtype),
      device_(device) {}

TensorView::TensorView(void* data, Shape shape, DataType dtype, Device device, Strides strides)
    : data_(data),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      dtype_(dtype),
      device_(device) {
  if (strides_.size() != shape_.size()) {
    throw std::invalid_argument("TensorView: expected " + std::to_string(shape_.size()) +
                                " strides for shape " + List(shape_) + ", found " + List(strides_));
  }
}

std::size_t TensorView::Axis(std::ptrdiff_t axis) const {
  auto rank = static_cast<std::ptrdiff_t>(ndim());
  if (axis < -rank || axis >= rank) {
    throw std::out_of_range("TensorView: axis " + std::to_string(axis) + " of a view of rank " +
                            std::to_string(rank));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

std::size_t TensorView::numel() const {
  std::size_t count = 1;
  for (Size size : shape_)
    count *= size;
  return count;
}

TensorView TensorView::operator[](Size index) const {
  if (index >= size(0)) {
    throw std::out_of_range("TensorView: index " + std::to_string(index) + " of an axis of size " +
                            std::to_string(shape_[0]));
  }
  auto* bytes = static_cast<std::byte*>(data_);
  auto offset = static_cast<Stride>(index * element_size()) * strides_[0];
  return TensorView(bytes + offset, Shape(shape().subspan(1)), dtype_, device_,
                    Strides(strides().subspan(1)));
}

TensorView TensorView::T() const {
  if (ndim() != 2) {
    throw std::invalid_argument("TensorView: T() needs rank 2, found shape " + List(shape_));
  }
  return TensorView(data_, Shape{shape_[1], shape_[0]}, dtype_, device_,
                    Strides{strides_[1], strides_[0]});
}

bool TensorView::IsContiguous() const {
  if (numel() == 0) return true;
  Stride expected = 1;
  for (std::size_t i = ndim(); i-- > 0;) {
    if (shape_[i] == 1) continue;
    if (strides_[i] != expected) return false;
    expected *= static_cast<Stride>(shape_[i]);
  }
  return true;
}

bool TensorView::HasBroadcastDim() const {
  for (std::size_t i = 0; i < ndim(); ++i) {
    if (shape_[i] > 1 && strides_[i] == 0) return true;
  }
  return false;
}

std::string TensorView::ToString() const {
  return "TensorView(" + std::string(rt::ToString(dtype_)) + ", shape " + List(shape_) +
         ", strides " + List(strides_) + ", " + device_.ToString() + ")";
}

}  // namespace infini::rt
