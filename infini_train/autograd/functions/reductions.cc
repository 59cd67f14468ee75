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
using detail::kCall;

/// The dimensions that a reduction removes and the shapes it gives.
struct Plan {
  Dims dims;
  Dims kept;               ///< with an extent of 1 for each of `dims`
  Dims result;             ///< what the caller sees
  std::int64_t count = 1;  ///< elements that fall together
};

Plan MakePlan(std::string_view name, const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  bool reduced[kMaxRank] = {};
  for (const int dim : dims) {
    bool& flag = reduced[NormalizeDim(dim, x.rank())];
    if (flag) {
      throw Error(
          fmt::format("{}: dimension {} is named twice in [{}]", name, dim, fmt::join(dims, ", ")));
    }
    flag = true;
  }
  Plan plan;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t extent = x.shape()[i];
    if (dims.empty() || reduced[i]) {
      plan.dims.push_back(i);
      plan.kept.push_back(1);
      if (keepdim) plan.result.push_back(1);
      plan.count *= extent;
    } else {
      plan.kept.push_back(extent);
      plan.result.push_back(extent);
    }
  }
  return plan;
}

/// Sums of integers are int64, as in PyTorch.
DataType SumType(DataType dtype) {
  return IsFloatingPoint(dtype) ? dtype : DataType::kInt64;
}

Tensor Extreme(std::string_view name,
               void (*compute)(Tensor& out, const Tensor& x, const Dims& dims), const Tensor& x,
               const std::vector<int>& dims, bool keepdim) {
  const Plan plan = MakePlan(name, x, dims, keepdim);
  if (plan.count == 0) {
    throw Error(fmt::format("{}: nothing to choose from in shape {}", name, x.shape().ToString()));
  }
  Tensor kept = Tensor::Empty(plan.kept, x.dtype(), x.device());
  compute(kept, x, plan.dims);
  Tensor out = raw::Reshape(kept, plan.result);
  if (ShouldRecord({&x})) {
    Record(
        name, {&out}, {&x},
        [x = SavedTensor(x), kept = SavedTensor(kept), dims = plan.dims](BackwardContext& context) {
          const Tensor input = x.Unpack();
          const Tensor extreme = kept.Unpack();
          const Dims& shape = input.shape();
          Tensor mask = Tensor::Empty(shape, DataType::kBool, input.device());
          Call<op::Eq>(mask, input, raw::Expand(extreme, shape));
          // Counted in a type that holds them exactly.
          const DataType dtype = detail::StatDataType(input);
          Tensor count = Tensor::Empty(extreme.shape(), dtype, input.device());
          Call<op::Sum>(count, raw::To(mask, dtype), dims);
          Tensor share = Tensor::EmptyLike(count);
          const Tensor grad_out = raw::Reshape(context.TakeGradOutput(), extreme.shape());
          Call<op::Div>(share, raw::To(grad_out, dtype), count);
          const Tensor zero = raw::Zeros({}, input.dtype(), input.device());
          Tensor grad_x = Tensor::EmptyLike(input);
          Call<op::Where>(grad_x, mask, raw::Expand(raw::To(share, input.dtype()), shape),
                          raw::Expand(zero, shape));
          context.SetGrad(0, std::move(grad_x));
        });
  }
  return out;
}

Tensor ArgExtreme(std::string_view name, void (*compute)(Tensor& out, const Tensor& x, int dim),
                  const Tensor& x, int dim, bool keepdim) {
  const int position = NormalizeDim(dim, x.rank());
  const Plan plan = MakePlan(name, x, {position}, keepdim);
  if (plan.count == 0) {
    throw Error(fmt::format("{}: nothing to choose from in shape {}", name, x.shape().ToString()));
  }
  Tensor out = Tensor::Empty(plan.kept, DataType::kInt64, x.device());
  compute(out, x, position);
  return raw::Reshape(out, plan.result);
}

/// Softmax and LogSoftmax, whose kernels work on the last dimension of contiguous tensors.
Tensor Normalized(std::string_view name, void (*compute)(Tensor& out, const Tensor& x),
                  void (*gradient)(Tensor& grad_x, const Tensor& grad_y, const Tensor& y),
                  const Tensor& x, int dim) {
  detail::CheckFloating(name, x);
  const int position = NormalizeDim(dim, x.rank());
  const int last = x.rank() - 1;
  const Tensor input = raw::Contiguous(raw::Transpose(x, position, last));
  Tensor rows = Tensor::EmptyLike(input);
  compute(rows, input);
  Tensor out = raw::Transpose(rows, position, last);
  if (ShouldRecord({&x})) {
    Record(name, {&out}, {&x},
           [rows = SavedTensor(rows), gradient, position, last](BackwardContext& context) {
             const Tensor y = rows.Unpack();
             const Tensor grad_out =
                 raw::Contiguous(raw::Transpose(context.TakeGradOutput(), position, last));
             Tensor grad_rows = Tensor::EmptyLike(y);
             gradient(grad_rows, grad_out, y);
             context.SetGrad(0, raw::Transpose(grad_rows, position, last));
           });
  }
  return out;
}

/// x from its last to its first slice along dim.
Tensor Reversed(const Tensor& x, int dim) {
  const std::int64_t extent = x.shape()[dim];
  Tensor index = Tensor::Empty({extent}, DataType::kInt64, x.device());
  Call<op::Arange>(index, Scalar(extent - 1), Scalar(-1));
  Tensor result = Tensor::EmptyLike(x);
  Call<op::IndexSelect>(result, x, index, dim);
  return result;
}

}  // namespace

Tensor Sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  const Plan plan = MakePlan("Sum", x, dims, keepdim);
  const Tensor input = raw::To(x, SumType(x.dtype()));
  Tensor kept = Tensor::Empty(plan.kept, input.dtype(), x.device());
  Call<op::Sum>(kept, input, plan.dims);
  Tensor out = raw::Reshape(kept, plan.result);
  if (ShouldRecord({&x})) {
    Record("Sum", {&out}, {&x}, [kept = plan.kept, shape = x.shape()](BackwardContext& context) {
      context.SetGrad(0, raw::Expand(raw::Reshape(context.TakeGradOutput(), kept), shape));
    });
  }
  return out;
}

Tensor Mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  detail::CheckFloating("Mean", x);
  const Plan plan = MakePlan("Mean", x, dims, keepdim);
  Tensor kept = Tensor::Empty(plan.kept, x.dtype(), x.device());
  Call<op::Mean>(kept, x, plan.dims);
  Tensor out = raw::Reshape(kept, plan.result);
  if (ShouldRecord({&x})) {
    Record("Mean", {&out}, {&x},
           [kept = plan.kept, count = plan.count, shape = x.shape()](BackwardContext& context) {
             const Tensor grad_out = context.TakeGradOutput();
             Tensor share = raw::BufferFor(grad_out);
             Call<op::DivScalar>(share, grad_out, Scalar(count));
             context.SetGrad(0, raw::Expand(raw::Reshape(share, kept), shape));
           });
  }
  return out;
}

Tensor Max(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return Extreme("Max", kCall<op::Max>, x, dims, keepdim);
}

Tensor Min(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return Extreme("Min", kCall<op::Min>, x, dims, keepdim);
}

Tensor ArgMax(const Tensor& x, int dim, bool keepdim) {
  return ArgExtreme("ArgMax", kCall<op::ArgMax>, x, dim, keepdim);
}

Tensor ArgMin(const Tensor& x, int dim, bool keepdim) {
  return ArgExtreme("ArgMin", kCall<op::ArgMin>, x, dim, keepdim);
}

Tensor CumSum(const Tensor& x, int dim) {
  const int position = NormalizeDim(dim, x.rank());
  const Tensor input = raw::To(x, SumType(x.dtype()));
  Tensor out = Tensor::EmptyLike(input);
  Call<op::CumSum>(out, input, position);
  if (ShouldRecord({&x})) {
    Record("CumSum", {&out}, {&x}, [position](BackwardContext& context) {
      // Element i is part of the sums i and later.
      const Tensor reversed = Reversed(context.TakeGradOutput(), position);
      Tensor sums = Tensor::EmptyLike(reversed);
      Call<op::CumSum>(sums, reversed, position);
      context.SetGrad(0, Reversed(sums, position));
    });
  }
  return out;
}

Tensor Softmax(const Tensor& x, int dim) {
  return Normalized("Softmax", kCall<op::Softmax>, kCall<op::SoftmaxBackward>, x, dim);
}

Tensor LogSoftmax(const Tensor& x, int dim) {
  return Normalized("LogSoftmax", kCall<op::LogSoftmax>, kCall<op::LogSoftmaxBackward>, x, dim);
}

}  // namespace infini_train
