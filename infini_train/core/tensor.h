#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"

namespace infini_train {

class Storage;
struct AutogradMeta;

/// Bytes of a storage, from `begin` up to but without `end`.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A cheap value handle on an n-dimensional array: dtype, shape, strides (in elements) and an
/// offset into reference-counted storage. Copying a Tensor copies the handle; views share storage.
/// A default-constructed Tensor is undefined and stands for "none".
///
/// This class describes memory only. Computation, including every differentiable view, lives in
/// free functions: see autograd/functions.h.
class INFINI_TRAIN_API Tensor {
 public:
  Tensor() = default;

  /// Uninitialised, row-major.
  static Tensor Empty(const Dims& shape, DataType dtype = DataType::kFloat32, Device device = {});
  /// Uninitialised, row-major, of `other`'s shape, dtype and device.
  static Tensor EmptyLike(const Tensor& other);
  /// A view on existing storage. Throws Error when any element would lie outside it.
  static Tensor FromStorage(std::shared_ptr<Storage> storage, DataType dtype, const Dims& shape,
                            const Dims& strides, std::int64_t offset = 0);
  /// A host tensor with a copy of `values`, row-major. Throws Error when the count is not
  /// Numel(shape).
  template <typename T>
  static Tensor FromVector(const std::vector<T>& values, const Dims& shape) {
    Tensor result = Empty(shape, DataTypeOf<T>());
    result.CopyFromHost(values.data(), values.size() * sizeof(T));
    return result;
  }

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }

  DataType dtype() const;
  Device device() const;
  const Dims& shape() const;
  /// In elements; 0 for a broadcast dimension.
  const Dims& strides() const;
  /// Of the first element, in elements from the start of the storage.
  std::int64_t offset() const;
  int rank() const { return shape().size(); }
  /// Extent of a dimension; negative dimensions count from the end.
  std::int64_t size(int dim) const;
  std::int64_t numel() const;
  std::size_t nbytes() const { return static_cast<std::size_t>(numel()) * SizeOf(dtype()); }
  /// Whether the elements lie in row-major order without gaps.
  bool IsContiguous() const;
  const std::shared_ptr<Storage>& storage() const;
  /// The bytes of the storage from the lowest element to the highest; empty without elements.
  ByteRange storage_range() const;
  bool SharesStorageWith(const Tensor& other) const;
  bool IsSameAs(const Tensor& other) const { return impl_ == other.impl_; }

  /// Address of the first element, on the tensor's device.
  void* raw_data() const;
  /// raw_data() as T*. Throws Error when T is not the tensor's element type.
  template <typename T>
  T* data() const {
    if (DataTypeOf<T>() != dtype()) ThrowWrongType(DataTypeOf<T>());
    return static_cast<T*>(raw_data());
  }

  /// A view with other shape and strides; `offset` is from the start of the storage. Autograd does
  /// not see it. Throws Error when any element would lie outside the storage.
  Tensor AsStrided(const Dims& shape, const Dims& strides, std::int64_t offset) const;
  /// The same memory without autograd history.
  Tensor Detach() const;

  /// Host values in row-major order (copied from the device, which is synchronised). Throws Error
  /// when T is not the element type.
  template <typename T>
  std::vector<T> ToVector() const {
    if (DataTypeOf<T>() != dtype()) ThrowWrongType(DataTypeOf<T>());
    std::vector<T> values(static_cast<std::size_t>(numel()));
    CopyToHost(values.data());
    return values;
  }
  /// The only element, converted to double. Throws Error unless numel() is 1.
  double Item() const;
  /// Writes all elements to host memory, row-major.
  void CopyToHost(void* destination) const;
  /// Fills a contiguous tensor from host memory. Throws Error unless `bytes` is nbytes().
  void CopyFromHost(const void* source, std::size_t bytes) const;

  /// Counts in-place writes to the storage.
  std::uint64_t version() const;
  void BumpVersion() const;

  // Autograd state; meaning and use in autograd/.
  bool requires_grad() const;
  /// Makes a leaf track gradients (or stop). Throws Error for non-floating dtypes and non-leaves.
  const Tensor& set_requires_grad(bool value = true) const;
  bool is_leaf() const;
  /// The accumulated gradient of a leaf; undefined before backward.
  const Tensor& grad() const;
  void set_grad(Tensor grad) const;
  /// Null without autograd history.
  AutogradMeta* autograd_meta() const;
  /// Creates the meta data on first call.
  AutogradMeta& EnsureAutogradMeta() const;

  /// Number of handles on this very tensor; 1 means that nobody else can see it.
  long use_count() const { return impl_.use_count(); }

  /// "Tensor([[1.0000, 2.0000]], shape=[1, 2], dtype=float32, device=cpu)"; long tensors are
  /// abbreviated with "...".
  std::string ToString() const;

 private:
  friend class WeakTensor;
  struct Impl;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  [[noreturn]] void ThrowWrongType(DataType requested) const;
  const Impl& impl() const;

  std::shared_ptr<Impl> impl_;
};

/// Refers to a tensor without keeping it alive.
class INFINI_TRAIN_API WeakTensor {
 public:
  explicit WeakTensor(const Tensor& tensor) : impl_(tensor.impl_) {}
  /// The tensor, or an undefined one when its last handle is gone.
  Tensor Lock() const { return Tensor(impl_.lock()); }

 private:
  std::weak_ptr<Tensor::Impl> impl_;
};

/// Read-only and writable lists of tensors as op arguments.
using TensorList = std::span<const Tensor>;
using MutableTensorList = std::span<Tensor>;

/// Tensors of a model, an optimizer or a file with their names, in order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

}  // namespace infini_train
