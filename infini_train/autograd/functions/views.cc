#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/autograd/selective_recompute.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::RecordKind;
using autograd::ShouldRecord;
using detail::GradTarget;

/// Records a view whose gradient is the same elements in x's shape.
Tensor Reshaped(std::string_view name, const Tensor& x, Tensor view) {
  if (ShouldRecord({&x})) {
    Record(
        name, {&view}, {&x},
        [shape = x.shape()](BackwardContext& context) {
          context.SetGrad(0, raw::Reshape(context.TakeGradOutput(), shape));
        },
        view.SharesStorageWith(x) ? RecordKind::kView : RecordKind::kNewOutputs);
    autograd::SetRecomputeFrom(
        x, view, [shape = view.shape()](const Tensor& x) { return raw::Reshape(x, shape); });
  }
  return view;
}

Tensor Permuted(const Tensor& x, const Dims& order) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  for (int i = 0; i < order.size(); ++i) {
    shape[i] = x.shape()[static_cast<int>(order[i])];
    strides[i] = x.strides()[static_cast<int>(order[i])];
  }
  return x.AsStrided(shape, strides, x.offset());
}

/// The elements of `x` that Slice keeps along one dimension.
struct Range {
  std::int64_t start = 0;
  std::int64_t length = 0;
  std::int64_t step = 1;
};

Tensor Sliced(const Tensor& x, int dim, const Range& range) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  shape[dim] = range.length;
  strides[dim] *= range.step;
  const std::int64_t offset = range.length == 0 ? 0 : range.start * x.strides()[dim];
  return x.AsStrided(shape, strides, x.offset() + offset);
}

/// Records a view of `range`; `view` may lack the dimension.
void RecordSlice(std::string_view name, const Tensor& x, const Tensor& view, int dim,
                 const Range& range) {
  if (!ShouldRecord({&x})) return;
  Record(
      name, {&view}, {&x},
      [target = GradTarget(x), dim, range](BackwardContext& context) {
        const Tensor grad_out = context.TakeGradOutput();
        const bool whole = range.length == target.shape[dim];
        Tensor grad_x = whole ? Tensor::Empty(target.shape, target.dtype, grad_out.device())
                              : raw::Zeros(target.shape, target.dtype, grad_out.device());
        Tensor part = Sliced(grad_x, dim, range);
        Call<op::Copy>(part, raw::Reshape(grad_out, part.shape()));
        context.SetGrad(0, std::move(grad_x));
      },
      RecordKind::kView);
}

}  // namespace

Tensor Reshape(const Tensor& x, const Dims& shape) {
  return x.shape() == shape ? x : Reshaped("Reshape", x, raw::Reshape(x, shape));
}

Tensor Flatten(const Tensor& x, int start, int end) {
  if (x.rank() == 0) return Reshape(x, {1});
  const int first = NormalizeDim(start, x.rank());
  const int last = NormalizeDim(end, x.rank());
  if (first > last) {
    throw Error(fmt::format("Flatten: expected start <= end, got dimensions {} to {} of {}", start,
                            end, x.shape().ToString()));
  }
  Dims shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i > first && i <= last) {
      shape.back() *= x.shape()[i];
    } else {
      shape.push_back(x.shape()[i]);
    }
  }
  return Reshape(x, shape);
}

Tensor Transpose(const Tensor& x, int dim0, int dim1) {
  const int first = NormalizeDim(dim0, x.rank());
  const int second = NormalizeDim(dim1, x.rank());
  Tensor view = raw::Transpose(x, first, second);
  if (ShouldRecord({&x})) {
    Record(
        "Transpose", {&view}, {&x},
        [first, second](BackwardContext& context) {
          context.SetGrad(0, raw::Transpose(context.TakeGradOutput(), first, second));
        },
        RecordKind::kView);
  }
  return view;
}

Tensor Permute(const Tensor& x, const std::vector<int>& order) {
  Dims inverse = Dims::Filled(x.rank(), -1);
  Dims normalized;
  bool valid = static_cast<int>(order.size()) == x.rank();
  for (std::size_t i = 0; valid && i < order.size(); ++i) {
    const int dim = NormalizeDim(order[i], x.rank());
    valid = inverse[dim] == -1;
    inverse[dim] = static_cast<std::int64_t>(i);
    normalized.push_back(dim);
  }
  if (!valid) {
    throw Error(fmt::format("Permute: expected each of {} dimensions once, got [{}]", x.rank(),
                            fmt::join(order, ", ")));
  }
  Tensor view = Permuted(x, normalized);
  if (ShouldRecord({&x})) {
    Record(
        "Permute", {&view}, {&x},
        [inverse](BackwardContext& context) {
          context.SetGrad(0, Permuted(context.TakeGradOutput(), inverse));
        },
        RecordKind::kView);
  }
  return view;
}

Tensor Squeeze(const Tensor& x, int dim) {
  const int position = NormalizeDim(dim, x.rank());
  if (x.shape()[position] != 1) {
    throw Error(fmt::format("Squeeze: expected an extent of 1 in dimension {}, got shape {}", dim,
                            x.shape().ToString()));
  }
  Dims shape = x.shape();
  Dims strides = x.strides();
  shape.erase(position);
  strides.erase(position);
  return Reshaped("Squeeze", x, x.AsStrided(shape, strides, x.offset()));
}

Tensor Unsqueeze(const Tensor& x, int dim) {
  const int position = NormalizeDim(dim, x.rank() + 1);
  Dims shape = x.shape();
  Dims strides = x.strides();
  strides.insert(position, position == x.rank() ? 1 : shape[position] * strides[position]);
  shape.insert(position, 1);
  return Reshaped("Unsqueeze", x, x.AsStrided(shape, strides, x.offset()));
}

Tensor Expand(const Tensor& x, const Dims& shape) {
  Dims resolved = shape;
  const int added = shape.size() - x.rank();
  for (int i = std::max(added, 0); i < shape.size(); ++i) {
    if (shape[i] == -1) resolved[i] = x.shape()[i - added];
  }
  if (resolved == x.shape()) return x;
  Tensor view = raw::Expand(x, resolved);
  if (ShouldRecord({&x})) {
    Record(
        "Expand", {&view}, {&x},
        [shape = x.shape()](BackwardContext& context) {
          context.SetGrad(0, raw::SumToShape(context.TakeGradOutput(), shape));
        },
        RecordKind::kView);
  }
  return view;
}

Tensor Slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  const int position = NormalizeDim(dim, x.rank());
  if (step <= 0) throw Error(fmt::format("Slice: expected a positive step, got {}", step));
  const std::int64_t extent = x.shape()[position];
  const auto clamp = [extent](std::int64_t bound) {
    return std::clamp<std::int64_t>(bound < 0 ? bound + extent : bound, 0, extent);
  };
  const std::int64_t first = clamp(start);
  const std::int64_t count = std::max<std::int64_t>(clamp(end) - first, 0);
  // Not (count + step - 1) / step: the step may be huge.
  const Range range = {first, count / step + (count % step != 0), count > 1 ? step : 1};
  Tensor view = Sliced(x, position, range);
  RecordSlice("Slice", x, view, position, range);
  return view;
}

Tensor Select(const Tensor& x, int dim, std::int64_t index) {
  const int position = NormalizeDim(dim, x.rank());
  const std::int64_t extent = x.shape()[position];
  if (index < -extent || index >= extent) {
    throw Error(fmt::format("Select: index {} is out of range for dimension {} of {}", index, dim,
                            x.shape().ToString()));
  }
  const Range range = {index < 0 ? index + extent : index, 1, 1};
  const Tensor slice = Sliced(x, position, range);
  Dims shape = slice.shape();
  Dims strides = slice.strides();
  shape.erase(position);
  strides.erase(position);
  Tensor view = slice.AsStrided(shape, strides, slice.offset());
  RecordSlice("Select", x, view, position, range);
  return view;
}

}  // namespace infini_train
