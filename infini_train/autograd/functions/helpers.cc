#include "infini_train/autograd/functions/helpers.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "infini_train/autograd/grad_mode.h"
#include "infini_train/autograd/parameter_casts.h"
#include "infini_train/core/device/graph.h"
#include "infini_train/core/error.h"
#include "infini_train/core/storage.h"

namespace infini_train {
namespace {

/// Replaces one -1 by what is left over, and checks the number of elements.
Dims ResolveShape(const Tensor& x, const Dims& shape) {
  Dims result = shape;
  int unknown = -1;
  std::int64_t known = 1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && unknown < 0) {
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  if (unknown >= 0 && known > 0 && x.numel() % known == 0) result[unknown] = x.numel() / known;
  bool valid = true;
  for (std::int64_t extent : result)
    valid &= extent >= 0;
  if (!valid || Numel(result) != x.numel()) {
    throw Error(fmt::format("Reshape: shape {} does not hold the {} elements of {}",
                            shape.ToString(), x.numel(), x.shape().ToString()));
  }
  return result;
}

/// Strides that show x's elements in `shape` (of as many elements) without moving them.
std::optional<Dims> ViewStrides(const Tensor& x, const Dims& shape) {
  if (x.numel() == 0 || x.IsContiguous()) return ContiguousStrides(shape);
  Dims strides = Dims::Filled(shape.size(), 1);
  // Walk both shapes from the end; a run of old dimensions that is dense in itself may be cut anew.
  int target = shape.size() - 1;
  int source = x.rank() - 1;
  while (source >= 0) {
    if (x.shape()[source] == 1) {
      --source;
      continue;
    }
    const std::int64_t base = x.strides()[source];
    std::int64_t run = x.shape()[source];
    int next = source - 1;
    while (next >= 0 && (x.shape()[next] == 1 || x.strides()[next] == base * run)) {
      run *= x.shape()[next];
      --next;
    }
    std::int64_t covered = 1;
    while (target >= 0 && covered < run) {
      strides[target] = base * covered;
      covered *= shape[target];
      --target;
    }
    if (covered != run) return std::nullopt;
    source = next;
  }
  return strides;
}

}  // namespace

namespace raw {

Tensor To(Tensor x, DataType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor result = Tensor::Empty(x.shape(), dtype, x.device());
  Call<op::Copy>(result, x);
  return result;
}

Tensor Contiguous(Tensor x) {
  return x.IsContiguous() ? x : Clone(x);
}

Tensor Clone(const Tensor& x) {
  Tensor result = Tensor::EmptyLike(x);
  Call<op::Copy>(result, x);
  return result;
}

Tensor Reshape(const Tensor& x, const Dims& shape) {
  const Dims resolved = ResolveShape(x, shape);
  if (const std::optional<Dims> strides = ViewStrides(x, resolved)) {
    return x.AsStrided(resolved, *strides, x.offset());
  }
  return Clone(x).AsStrided(resolved, ContiguousStrides(resolved), 0);
}

Tensor AsMatrix(const Tensor& x) {
  // Not -1: the rows may have no elements.
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i)
    rows *= x.shape()[i];
  return Reshape(x, {rows, x.size(-1)});
}

Tensor Expand(const Tensor& x, const Dims& shape) {
  if (x.shape() == shape) return x;
  Dims strides = Dims::Filled(shape.size(), 0);
  const int added = shape.size() - x.rank();
  bool valid = added >= 0;
  for (int i = 0; valid && i < x.rank(); ++i) {
    const std::int64_t extent = x.shape()[i];
    valid = extent == shape[added + i] || extent == 1;
    if (extent == shape[added + i]) strides[added + i] = x.strides()[i];
  }
  if (!valid) {
    throw Error(
        fmt::format("shape {} does not broadcast to {}", x.shape().ToString(), shape.ToString()));
  }
  return x.AsStrided(shape, strides, x.offset());
}

Tensor Transpose(const Tensor& x, int dim0, int dim1) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  std::swap(shape[dim0], shape[dim1]);
  std::swap(strides[dim0], strides[dim1]);
  return x.AsStrided(shape, strides, x.offset());
}

Tensor Narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  Dims shape = x.shape();
  shape[dim] = length;
  return x.AsStrided(shape, x.strides(), x.offset() + start * x.strides()[dim]);
}

Tensor GemmOperand(const Tensor& x) {
  const int last = x.rank() - 1;
  const auto fits = [&](int unit, int other) {
    return (x.strides()[unit] == 1 || x.shape()[unit] == 1) &&
           (x.strides()[other] >= x.shape()[unit] || x.shape()[other] == 1);
  };
  return fits(last, last - 1) || fits(last - 1, last) ? x : Contiguous(x);
}

Tensor SumToShape(const Tensor& grad, const Dims& shape) {
  if (grad.shape() == shape) return grad;
  const int added = grad.rank() - shape.size();
  Dims dims;
  Dims kept = grad.shape();
  for (int i = 0; i < grad.rank(); ++i) {
    if (i < added || (shape[i - added] == 1 && grad.shape()[i] != 1)) {
      dims.push_back(i);
      kept[i] = 1;
    }
  }
  Tensor sum = Tensor::Empty(kept, grad.dtype(), grad.device());
  Call<op::Sum>(sum, grad, dims);
  return Reshape(sum, shape);
}

Tensor Zeros(const Dims& shape, DataType dtype, Device device) {
  Tensor result = Tensor::Empty(shape, dtype, device);
  Call<op::Fill>(result, Scalar(0));
  return result;
}

bool OwnsItsMemory(const Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.IsContiguous() &&
         tensor.storage()->bytes() == tensor.nbytes();
}

Tensor BufferFor(const Tensor& grad) {
  return OwnsItsMemory(grad) ? grad : Tensor::EmptyLike(grad);
}

}  // namespace raw

namespace detail {

Generator::State NextRandomState(Generator* generator, Device device) {
  const std::optional<Device> captured = DeviceGraph::Capturing();
  if (generator == nullptr && captured && *captured != device) {
    throw Error(
        fmt::format("random numbers on {} are not part of a graph of {}: give the op a "
                    "generator of its own",
                    device.is_cpu() ? "the CPU" : device.ToString(), captured->ToString()));
  }
  return (generator != nullptr ? *generator : DefaultGenerator()).Next();
}

void CheckFloating(std::string_view name, const Tensor& x) {
  if (!IsFloatingPoint(x.dtype())) ThrowUnsupportedDataType(name, x.dtype(), "a floating type");
}

void CheckIndex(std::string_view name, const Tensor& x) {
  if (x.dtype() != DataType::kInt64 && x.dtype() != DataType::kInt32) {
    ThrowUnsupportedDataType(name, x.dtype(), "int64 or int32 indices");
  }
}

DataType MatmulDataType(std::string_view name, const Tensor& a, const Tensor& b) {
  CheckFloating(name, a);
  CheckFloating(name, b);
  const DataType dtype = PromoteTypes(a.dtype(), b.dtype());
  const std::optional<DataType> autocast_dtype = autocast::ComputeDataType();
  return autocast_dtype && dtype != DataType::kFloat64 ? *autocast_dtype : dtype;
}

void CheckLinear(std::string_view name, std::int64_t in_features, const Tensor& weight,
                 const Tensor& bias) {
  if (weight.rank() != 2 || in_features != weight.size(1)) {
    throw Error(fmt::format("{}: expected x [.., in] and weight [out, in], got in = {} and {}",
                            name, in_features, weight.shape().ToString()));
  }
  if (bias.defined() && !(bias.shape() == Dims{weight.size(0)})) {
    throw Error(fmt::format("{}: expected a bias of shape [{}], got {}", name, weight.size(0),
                            bias.shape().ToString()));
  }
}

Tensor NormParameter(const Tensor& parameter, DataType dtype) {
  if (!parameter.defined()) return parameter;
  const bool wider = parameter.dtype() == DataType::kFloat32 && dtype != DataType::kFloat64;
  return raw::Contiguous(wider ? parameter : raw::To(parameter, dtype));
}

Tensor InShapeOf(const Tensor& x, const Tensor& rows) {
  Dims shape = x.shape();
  shape.back() = rows.size(1);
  return raw::Reshape(rows, shape);
}

Tensor ProductParameter(const Tensor& parameter, DataType dtype) {
  const Tensor copy = ParameterCasts::Find(parameter, dtype);
  return copy.defined() ? copy : raw::To(parameter, dtype);
}

}  // namespace detail
}  // namespace infini_train
