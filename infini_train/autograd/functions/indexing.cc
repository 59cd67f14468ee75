#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::SavedTensor;
using autograd::ShouldRecord;
using detail::GradTarget;
using detail::kCall;

Tensor GatherFrom(const Tensor& x, const Tensor& index, int dim) {
  Tensor out = Tensor::Empty(index.shape(), x.dtype(), x.device());
  Call<op::Gather>(out, x, index, dim);
  return out;
}

/// Throws Error unless index fits x in all dimensions but dim.
void CheckGatherIndex(std::string_view name, const Tensor& x, const Tensor& index, int dim) {
  detail::CheckIndex(name, index);
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i)
    fits = i == dim || index.shape()[i] <= x.shape()[i];
  if (!fits) {
    throw Error(fmt::format("{}: an index of shape {} does not fit {} outside dimension {}", name,
                            index.shape().ToString(), x.shape().ToString(), dim));
  }
}

void CheckSource(std::string_view name, const Tensor& x, const Tensor& src, const Dims& expected) {
  if (src.dtype() != x.dtype() || !(src.shape() == expected)) {
    throw Error(fmt::format("{}: expected a source of shape {} and {}, got {} and {}", name,
                            expected.ToString(), ToString(x.dtype()), src.shape().ToString(),
                            ToString(src.dtype())));
  }
}

/// The extent of dim becomes that of a 1-D index.
Dims SelectedShape(std::string_view name, const Tensor& x, int dim, const Tensor& index) {
  detail::CheckIndex(name, index);
  if (index.rank() != 1) {
    throw Error(fmt::format("{}: expected an index of one dimension, got shape {}", name,
                            index.shape().ToString()));
  }
  Dims shape = x.shape();
  shape[dim] = index.numel();
  return shape;
}

/// Throws Error unless the type can be added up.
void CheckSummable(std::string_view name, const Tensor& x) {
  const bool summable =
      IsFloatingPoint(x.dtype()) || x.dtype() == DataType::kInt64 || x.dtype() == DataType::kInt32;
  if (!summable) {
    detail::ThrowUnsupportedDataType(name, x.dtype(), "a floating type, int64 or int32");
  }
}

/// Where several elements of src are written to one place, whether each is not the last of them.
Tensor Overwritten(const Tensor& index, const Dims& shape, int dim) {
  Tensor order = Tensor::Empty({index.numel()}, DataType::kInt64, index.device());
  Call<op::Arange>(order, Scalar(0), Scalar(1));
  order = raw::Reshape(order, index.shape());
  Tensor last = Tensor::Empty(shape, DataType::kInt64, index.device());
  Call<op::Scatter>(last, index, order, dim);
  Tensor mask = Tensor::Empty(index.shape(), DataType::kBool, index.device());
  Call<op::Ne>(mask, GatherFrom(last, index, dim), order);
  return mask;
}

/// Sort and TopK give values whose gradient goes back to their positions. `rows` and `indices` have
/// the dimension last.
void RecordSelection(std::string_view name, const Tensor& values, const Tensor& x,
                     const Tensor& indices, int dim) {
  if (!ShouldRecord({&x})) return;
  Record(name, {&values}, {&x},
         [indices = SavedTensor(indices), target = GradTarget(x), dim](BackwardContext& context) {
           const int last = target.shape.size() - 1;
           const Tensor positions = indices.Unpack();
           Tensor grad_x = raw::Zeros(target.shape, target.dtype, positions.device());
           Tensor grad_rows = raw::Transpose(grad_x, dim, last);
           Call<op::Scatter>(grad_rows, positions,
                             raw::Transpose(context.TakeGradOutput(), dim, last), last);
           context.SetGrad(0, std::move(grad_x));
         });
}

/// Runs Sort or TopK along dim, keeping `count` elements.
std::pair<Tensor, Tensor> SelectSorted(std::string_view name,
                                       void (*compute)(Tensor& values, Tensor& indices,
                                                       const Tensor& x, bool flag),
                                       const Tensor& x, int dim, std::int64_t count, bool flag) {
  const int last = x.rank() - 1;
  const Tensor input = raw::Contiguous(raw::Transpose(x, dim, last));
  Dims shape = input.shape();
  shape[last] = count;
  Tensor rows = Tensor::Empty(shape, x.dtype(), x.device());
  Tensor indices = Tensor::Empty(shape, DataType::kInt64, x.device());
  compute(rows, indices, input, flag);
  Tensor values = raw::Transpose(rows, dim, last);
  RecordSelection(name, values, x, indices, dim);
  return {std::move(values), raw::Transpose(indices, dim, last)};
}

}  // namespace

Tensor Gather(const Tensor& x, int dim, const Tensor& index) {
  const int position = NormalizeDim(dim, x.rank());
  CheckGatherIndex("Gather", x, index, position);
  Tensor out = GatherFrom(x, index, position);
  if (ShouldRecord({&x})) {
    Record(
        "Gather", {&out}, {&x},
        [index = SavedTensor(index), target = GradTarget(x), position](BackwardContext& context) {
          const Tensor grad_out = context.TakeGradOutput();
          Tensor grad_x = raw::Zeros(target.shape, target.dtype, grad_out.device());
          Call<op::ScatterAdd>(grad_x, index.Unpack(), grad_out, position);
          context.SetGrad(0, std::move(grad_x));
        });
  }
  return out;
}

Tensor Scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const int position = NormalizeDim(dim, x.rank());
  CheckGatherIndex("Scatter", x, index, position);
  CheckSource("Scatter", x, src, index.shape());
  Tensor out = raw::Clone(x);
  Call<op::Scatter>(out, index, src, position);
  if (ShouldRecord({&x, &src})) {
    Record("Scatter", {&out}, {&x, &src},
           [index = SavedTensor(index), position](BackwardContext& context) {
             const Tensor grad_out = context.TakeGradOutput();
             const Tensor places = index.Unpack();
             if (context.NeedsGrad(0)) {
               Tensor grad_x = raw::Clone(grad_out);
               const Tensor zero = raw::Zeros({}, grad_x.dtype(), grad_x.device());
               Call<op::Scatter>(grad_x, places, raw::Expand(zero, places.shape()), position);
               context.SetGrad(0, std::move(grad_x));
             }
             if (context.NeedsGrad(1)) {
               Tensor grad_src = GatherFrom(grad_out, places, position);
               Call<op::MaskedFill>(grad_src, grad_src,
                                    Overwritten(places, grad_out.shape(), position), Scalar(0));
               context.SetGrad(1, std::move(grad_src));
             }
           });
  }
  return out;
}

Tensor ScatterAdd(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const int position = NormalizeDim(dim, x.rank());
  CheckSummable("ScatterAdd", x);
  CheckGatherIndex("ScatterAdd", x, index, position);
  CheckSource("ScatterAdd", x, src, index.shape());
  Tensor out = raw::Clone(x);
  Call<op::ScatterAdd>(out, index, src, position);
  if (ShouldRecord({&x, &src})) {
    Record("ScatterAdd", {&out}, {&x, &src},
           [index = src.requires_grad() ? SavedTensor(index) : SavedTensor(),
            position](BackwardContext& context) {
             const Tensor grad_out = context.TakeGradOutput();
             if (context.NeedsGrad(0)) context.SetGrad(0, grad_out);
             if (context.NeedsGrad(1)) {
               context.SetGrad(1, GatherFrom(grad_out, index.Unpack(), position));
             }
           });
  }
  return out;
}

Tensor IndexSelect(const Tensor& x, int dim, const Tensor& index) {
  const int position = NormalizeDim(dim, x.rank());
  const Dims shape = SelectedShape("IndexSelect", x, position, index);
  Tensor out = Tensor::Empty(shape, x.dtype(), x.device());
  Call<op::IndexSelect>(out, x, index, position);
  if (ShouldRecord({&x})) {
    Record(
        "IndexSelect", {&out}, {&x},
        [index = SavedTensor(index), target = GradTarget(x), position](BackwardContext& context) {
          const Tensor grad_out = context.TakeGradOutput();
          Tensor grad_x = raw::Zeros(target.shape, target.dtype, grad_out.device());
          Call<op::IndexAdd>(grad_x, index.Unpack(), grad_out, position);
          context.SetGrad(0, std::move(grad_x));
        });
  }
  return out;
}

Tensor IndexAdd(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const int position = NormalizeDim(dim, x.rank());
  CheckSummable("IndexAdd", x);
  CheckSource("IndexAdd", x, src, SelectedShape("IndexAdd", x, position, index));
  Tensor out = raw::Clone(x);
  Call<op::IndexAdd>(out, index, src, position);
  if (ShouldRecord({&x, &src})) {
    Record("IndexAdd", {&out}, {&x, &src},
           [index = src.requires_grad() ? SavedTensor(index) : SavedTensor(), shape = src.shape(),
            position](BackwardContext& context) {
             const Tensor grad_out = context.TakeGradOutput();
             if (context.NeedsGrad(0)) context.SetGrad(0, grad_out);
             if (context.NeedsGrad(1)) {
               Tensor grad_src = Tensor::Empty(shape, grad_out.dtype(), grad_out.device());
               Call<op::IndexSelect>(grad_src, grad_out, index.Unpack(), position);
               context.SetGrad(1, std::move(grad_src));
             }
           });
  }
  return out;
}

std::pair<Tensor, Tensor> Sort(const Tensor& x, int dim, bool descending) {
  const int position = NormalizeDim(dim, x.rank());
  return SelectSorted("Sort", kCall<op::Sort>, x, position, x.shape()[position], descending);
}

std::pair<Tensor, Tensor> TopK(const Tensor& x, std::int64_t k, int dim, bool largest) {
  const int position = NormalizeDim(dim, x.rank());
  if (k < 0 || k > x.shape()[position]) {
    throw Error(fmt::format("TopK: expected k from 0 to {}, got {}", x.shape()[position], k));
  }
  return SelectSorted("TopK", kCall<op::TopK>, x, position, k, largest);
}

}  // namespace infini_train
