#include "infini_train/core/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "infini_train/core/autograd_meta.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/storage.h"

namespace infini_train {

struct Tensor::Impl {
  std::shared_ptr<Storage> storage;
  DataType dtype = DataType::kFloat32;
  bool contiguous = true;
  Dims shape;
  Dims strides;
  std::int64_t offset = 0;
  std::int64_t numel = 0;
  std::unique_ptr<AutogradMeta> autograd;
};

namespace {

bool ComputeContiguous(const Dims& shape, const Dims& strides) {
  std::int64_t expected = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

/// The lowest and highest storage index of the elements of a tensor that is not empty. `fits` turns
/// false where they exceed 63 bits.
struct IndexRange {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
  bool fits = true;
};

IndexRange ComputeIndexRange(const Dims& shape, const Dims& strides, std::int64_t offset) {
  IndexRange range{offset, offset};
  for (int i = 0; i < shape.size(); ++i) {
    std::int64_t reach = 0;
    bool overflow = __builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
    std::int64_t& bound = reach < 0 ? range.lowest : range.highest;
    overflow |= __builtin_add_overflow(bound, reach, &bound);
    if (overflow) range.fits = false;
  }
  return range;
}

void CheckInsideStorage(const Storage& storage, DataType dtype, const Dims& shape,
                        const Dims& strides, std::int64_t offset) {
  if (shape.size() != strides.size()) {
    throw Error(fmt::format("shape {} and strides {} differ in length", shape.ToString(),
                            strides.ToString()));
  }
  if (Numel(shape) == 0) return;
  const IndexRange range = ComputeIndexRange(shape, strides, offset);
  const auto capacity = static_cast<std::int64_t>(storage.bytes() / SizeOf(dtype));
  if (!range.fits || range.lowest < 0 || range.highest >= capacity) {
    throw Error(fmt::format(
        "view of shape {}, strides {}, offset {} does not fit a storage of {} {} elements",
        shape.ToString(), strides.ToString(), offset, capacity, infini_train::ToString(dtype)));
  }
}

const Tensor& UndefinedTensor() {
  static const Tensor tensor;
  return tensor;
}

/// Copies a strided host array to row-major order.
void GatherToContiguous(std::byte* destination, const std::byte* source, std::size_t element_size,
                        const Dims& shape, const Dims& strides) {
  const int rank = shape.size();
  const std::int64_t inner = rank == 0 ? 1 : shape[rank - 1];
  const std::int64_t inner_stride = rank == 0 ? 1 : strides[rank - 1];
  Dims index = Dims::Filled(rank, 0);
  const std::int64_t rows = inner == 0 ? 0 : Numel(shape) / inner;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t start = 0;
    for (int d = 0; d + 1 < rank; ++d)
      start += index[d] * strides[d];
    if (inner_stride == 1) {
      std::memcpy(destination, source + start * static_cast<std::int64_t>(element_size),
                  static_cast<std::size_t>(inner) * element_size);
      destination += inner * static_cast<std::int64_t>(element_size);
    } else {
      for (std::int64_t i = 0; i < inner; ++i) {
        std::memcpy(destination,
                    source + (start + i * inner_stride) * static_cast<std::int64_t>(element_size),
                    element_size);
        destination += element_size;
      }
    }
    for (int d = rank - 2; d >= 0 && ++index[d] == shape[d]; --d)
      index[d] = 0;
  }
}

}  // namespace

const Tensor::Impl& Tensor::impl() const {
  if (!impl_) throw Error("the tensor is undefined");
  return *impl_;
}

Tensor Tensor::Empty(const Dims& shape, DataType dtype, Device device) {
  const std::int64_t numel = Numel(shape);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(numel), SizeOf(dtype), &bytes)) {
    throw Error(fmt::format("shape {} of {} does not fit in memory", shape.ToString(),
                            infini_train::ToString(dtype)));
  }
  auto impl = std::make_shared<Impl>();
  impl->storage = std::make_shared<Storage>(device, bytes);
  impl->dtype = dtype;
  impl->shape = shape;
  impl->strides = ContiguousStrides(shape);
  impl->numel = numel;
  return Tensor(std::move(impl));
}

Tensor Tensor::EmptyLike(const Tensor& other) {
  return Empty(other.shape(), other.dtype(), other.device());
}

Tensor Tensor::FromStorage(std::shared_ptr<Storage> storage, DataType dtype, const Dims& shape,
                           const Dims& strides, std::int64_t offset) {
  CheckInsideStorage(*storage, dtype, shape, strides, offset);
  auto impl = std::make_shared<Impl>();
  impl->storage = std::move(storage);
  impl->dtype = dtype;
  impl->contiguous = ComputeContiguous(shape, strides);
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = offset;
  impl->numel = Numel(shape);
  return Tensor(std::move(impl));
}

DataType Tensor::dtype() const {
  return impl().dtype;
}
Device Tensor::device() const {
  return impl().storage->device();
}
const Dims& Tensor::shape() const {
  return impl().shape;
}
const Dims& Tensor::strides() const {
  return impl().strides;
}
std::int64_t Tensor::offset() const {
  return impl().offset;
}
std::int64_t Tensor::size(int dim) const {
  return impl().shape[NormalizeDim(dim, rank())];
}
std::int64_t Tensor::numel() const {
  return impl().numel;
}
bool Tensor::IsContiguous() const {
  return impl().contiguous;
}
const std::shared_ptr<Storage>& Tensor::storage() const {
  return impl().storage;
}
std::uint64_t Tensor::version() const {
  return impl().storage->version();
}
void Tensor::BumpVersion() const {
  impl().storage->BumpVersion();
}

bool Tensor::SharesStorageWith(const Tensor& other) const {
  return defined() && other.defined() && impl_->storage == other.impl_->storage;
}

ByteRange Tensor::storage_range() const {
  if (numel() == 0) return {};
  const IndexRange range = ComputeIndexRange(shape(), strides(), offset());
  const std::size_t element_size = SizeOf(dtype());
  return {static_cast<std::size_t>(range.lowest) * element_size,
          static_cast<std::size_t>(range.highest + 1) * element_size};
}

void* Tensor::raw_data() const {
  auto* data = static_cast<std::byte*>(impl().storage->data());
  // A storage of no bytes has no address to count from.
  if (data == nullptr) return nullptr;
  return data + impl_->offset * static_cast<std::int64_t>(SizeOf(impl_->dtype));
}

Tensor Tensor::AsStrided(const Dims& shape, const Dims& strides, std::int64_t offset) const {
  return FromStorage(impl().storage, impl_->dtype, shape, strides, offset);
}

Tensor Tensor::Detach() const {
  impl();
  auto copy = std::make_shared<Impl>();
  copy->storage = impl_->storage;
  copy->dtype = impl_->dtype;
  copy->contiguous = impl_->contiguous;
  copy->shape = impl_->shape;
  copy->strides = impl_->strides;
  copy->offset = impl_->offset;
  copy->numel = impl_->numel;
  return Tensor(std::move(copy));
}

void Tensor::CopyToHost(void* destination) const {
  if (numel() == 0) return;
  DeviceGuardImpl& guard_impl = GetDeviceGuardImpl(device().type());
  auto* out = static_cast<std::byte*>(destination);
  if (guard_impl.IsHostMemory()) {
    GatherToContiguous(out, static_cast<const std::byte*>(raw_data()), SizeOf(dtype()), shape(),
                       strides());
    return;
  }
  DeviceGuard guard(device());
  const StreamHandle stream = CurrentStream(device());
  if (IsContiguous()) {
    guard_impl.CopyAsync(out, raw_data(), nbytes(), CopyKind::kDeviceToHost, stream);
    guard_impl.SynchronizeStream(stream);
    return;
  }
  // The range that the elements lie in, in one piece.
  const ByteRange range = storage_range();
  const std::size_t element_size = SizeOf(dtype());
  std::vector<std::byte> buffer(range.end - range.begin);
  guard_impl.CopyAsync(buffer.data(),
                       static_cast<const std::byte*>(storage()->data()) + range.begin,
                       buffer.size(), CopyKind::kDeviceToHost, stream);
  guard_impl.SynchronizeStream(stream);
  const std::size_t first = static_cast<std::size_t>(offset()) * element_size - range.begin;
  GatherToContiguous(out, buffer.data() + first, element_size, shape(), strides());
}

void Tensor::CopyFromHost(const void* source, std::size_t bytes) const {
  if (!IsContiguous()) {
    throw Error(fmt::format("expected a contiguous tensor to fill from host memory, got strides {}",
                            strides().ToString()));
  }
  if (bytes != nbytes()) {
    throw Error(fmt::format("expected {} bytes for shape {} of {}, got {}", nbytes(),
                            shape().ToString(), infini_train::ToString(dtype()), bytes));
  }
  if (bytes == 0) return;
  DeviceGuardImpl& guard_impl = GetDeviceGuardImpl(device().type());
  if (guard_impl.IsHostMemory()) {
    std::memcpy(raw_data(), source, bytes);
  } else {
    DeviceGuard guard(device());
    const StreamHandle stream = CurrentStream(device());
    guard_impl.CopyAsync(raw_data(), source, bytes, CopyKind::kHostToDevice, stream);
    guard_impl.SynchronizeStream(stream);
  }
  BumpVersion();
}

double Tensor::Item() const {
  if (numel() != 1) {
    throw Error(fmt::format("expected a tensor of one element, got shape {}", shape().ToString()));
  }
  return DispatchAll("Item", dtype(), [&](auto tag) {
    typename decltype(tag)::type value;
    CopyToHost(&value);
    return static_cast<double>(value);
  });
}

void Tensor::ThrowWrongType(DataType requested) const {
  throw Error(fmt::format("expected a tensor of {}, got {}", infini_train::ToString(requested),
                          infini_train::ToString(dtype())));
}

bool Tensor::requires_grad() const {
  const AutogradMeta* meta = autograd_meta();
  return meta != nullptr && (meta->requires_grad || meta->grad_fn != nullptr);
}

const Tensor& Tensor::set_requires_grad(bool value) const {
  if (!is_leaf()) throw Error("requires_grad can only be set on a leaf tensor; detach it first");
  if (value && !IsFloatingPoint(dtype())) {
    throw Error(fmt::format("expected a floating type to require gradients, got {}",
                            infini_train::ToString(dtype())));
  }
  EnsureAutogradMeta().requires_grad = value;
  return *this;
}

bool Tensor::is_leaf() const {
  const AutogradMeta* meta = autograd_meta();
  return meta == nullptr || meta->grad_fn == nullptr;
}

const Tensor& Tensor::grad() const {
  const AutogradMeta* meta = autograd_meta();
  return meta == nullptr ? UndefinedTensor() : meta->grad;
}

void Tensor::set_grad(Tensor grad) const {
  if (grad.defined() && !(grad.shape() == shape())) {
    throw Error(fmt::format("expected a gradient of shape {}, got {}", shape().ToString(),
                            grad.shape().ToString()));
  }
  EnsureAutogradMeta().grad = std::move(grad);
}

AutogradMeta* Tensor::autograd_meta() const {
  return impl().autograd.get();
}

AutogradMeta& Tensor::EnsureAutogradMeta() const {
  impl();
  if (!impl_->autograd) impl_->autograd = std::make_unique<AutogradMeta>();
  return *impl_->autograd;
}

}  // namespace infini_train
