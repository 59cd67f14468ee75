#include <fmt/format.h>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::SavedTensor;
using autograd::ShouldRecord;

/// The transpose of the last two dimensions, without history.
Tensor SwapLastTwo(const Tensor& x) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  const int last = shape.size() - 1;
  std::swap(shape[last - 1], shape[last]);
  std::swap(strides[last - 1], strides[last]);
  return x.AsStrided(shape, strides, x.offset());
}

/// A layout that the Gemm op takes: one of the last two strides is 1, the other spans the extent.
Tensor GemmOperand(const Tensor& x) {
  const int last = x.rank() - 1;
  const auto fits = [&](int unit, int other) {
    return (x.strides()[unit] == 1 || x.shape()[unit] == 1) &&
           (x.strides()[other] >= x.shape()[unit] || x.shape()[other] == 1);
  };
  return fits(last, last - 1) || fits(last - 1, last) ? x : raw::Contiguous(x);
}

Tensor ColumnSum(const Tensor& matrix, DataType dtype) {
  Tensor sum = Tensor::Empty({1, matrix.size(1)}, matrix.dtype(), matrix.device());
  Call<op::Sum>(sum, matrix, Dims{0});
  return raw::To(raw::Reshape(sum, {matrix.size(1)}), dtype);
}

}  // namespace

Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.rank() != 2 || x.rank() < 1 || x.size(-1) != weight.size(1)) {
    throw Error(fmt::format("Linear: expected x [.., in] and weight [out, in], got {} and {}",
                            x.shape().ToString(), weight.shape().ToString()));
  }
  if (bias.defined() && !(bias.shape() == Dims{weight.size(0)})) {
    throw Error(fmt::format("Linear: expected a bias of shape [{}], got {}", weight.size(0),
                            bias.shape().ToString()));
  }
  const DataType dtype = detail::MatmulDataType("Linear", x, weight);
  const Tensor compute_weight = raw::To(weight, dtype);
  const Tensor matrix = raw::AsMatrix(raw::To(x, dtype));
  Dims shape = x.shape();
  shape.back() = weight.size(0);
  Tensor out = Tensor::Empty({matrix.size(0), weight.size(0)}, dtype, x.device());
  Call<op::Gemm>(out, GemmOperand(matrix), SwapLastTwo(GemmOperand(compute_weight)),
                 bias.defined() ? raw::To(bias, dtype) : Tensor(), false);
  Tensor result = raw::Reshape(out, shape);
  if (ShouldRecord({&x, &weight, &bias})) {
    const bool weight_needs_grad = weight.requires_grad();
    Record("Linear", {&result}, {&x, &weight, &bias},
           [matrix = weight_needs_grad ? SavedTensor(matrix) : SavedTensor(),
            weight = x.requires_grad() ? SavedTensor(compute_weight) : SavedTensor(),
            x_shape = x.shape(), x_dtype = x.dtype(), weight_dtype = weight.dtype(),
            bias_dtype = bias.defined() ? bias.dtype() : dtype](BackwardContext& context) {
             const Tensor grad_out = raw::AsMatrix(raw::Contiguous(context.TakeGradOutput()));
             if (context.NeedsGrad(1)) {
               const Tensor input = GemmOperand(matrix.Unpack());
               const Tensor grad_transposed = SwapLastTwo(grad_out);
               Tensor grad_weight = context.AccumulationTarget(1);
               const bool accumulate = grad_weight.defined() &&
                                       detail::GemmWrites(grad_out.dtype(), grad_weight.dtype());
               if (!accumulate) {
                 grad_weight = Tensor::Empty({grad_out.size(1), input.size(1)},
                                             detail::GemmWrites(grad_out.dtype(), weight_dtype)
                                                 ? weight_dtype
                                                 : grad_out.dtype(),
                                             grad_out.device());
               }
               Call<op::Gemm>(grad_weight, grad_transposed, input, Tensor(), accumulate);
               if (!accumulate) context.SetGrad(1, raw::To(std::move(grad_weight), weight_dtype));
             }
             if (context.NeedsGrad(2)) context.SetGrad(2, ColumnSum(grad_out, bias_dtype));
             if (context.NeedsGrad(0)) {
               const Tensor compute_weight = GemmOperand(weight.Unpack());
               Tensor grad_x = Tensor::Empty({grad_out.size(0), compute_weight.size(1)},
                                             grad_out.dtype(), grad_out.device());
               Call<op::Gemm>(grad_x, grad_out, compute_weight, Tensor(), false);
               context.SetGrad(0, raw::To(raw::Reshape(grad_x, x_shape), x_dtype));
             }
           });
  }
  return result;
}

Tensor Matmul(const Tensor& a, const Tensor& b) {
  if (a.rank() == 0 || b.rank() == 0) {
    throw Error(fmt::format("Matmul: expected at least one dimension, got {} and {}",
                            a.shape().ToString(), b.shape().ToString()));
  }
  if (a.rank() == 1) return Squeeze(Matmul(Unsqueeze(a, 0), b), b.rank() == 1 ? 0 : -2);
  if (b.rank() == 1) return Squeeze(Matmul(a, Unsqueeze(b, 1)), -1);
  if (a.size(-1) != b.size(-2)) {
    throw Error(fmt::format("Matmul: expected [.., M, K] and [.., K, N], got {} and {}",
                            a.shape().ToString(), b.shape().ToString()));
  }
  const DataType dtype = detail::MatmulDataType("Matmul", a, b);
  const auto batch_of = [](const Tensor& x) {
    return Dims(std::span(x.shape().begin(), x.shape().end() - 2));
  };
  const Dims batch = BroadcastShapes(batch_of(a), batch_of(b));
  const auto operand = [&](const Tensor& x) {
    Dims shape = batch;
    shape.push_back(x.size(-2));
    shape.push_back(x.size(-1));
    return raw::Expand(GemmOperand(raw::To(x, dtype)), shape);
  };
  const Tensor left = operand(a);
  const Tensor right = operand(b);
  Dims shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  Tensor out = Tensor::Empty(shape, dtype, a.device());
  Call<op::Gemm>(out, left, right, Tensor(), false);
  if (ShouldRecord({&a, &b})) {
    Record(
        "Matmul", {&out}, {&a, &b},
        [left = b.requires_grad() ? SavedTensor(left) : SavedTensor(),
         right = a.requires_grad() ? SavedTensor(right) : SavedTensor(), a_shape = a.shape(),
         b_shape = b.shape(), a_dtype = a.dtype(), b_dtype = b.dtype()](BackwardContext& context) {
          const Tensor grad_out = GemmOperand(context.TakeGradOutput());
          const auto product = [&](const Tensor& x, const Tensor& y, const Dims& target,
                                   DataType dtype) {
            Dims shape = x.shape();
            shape.back() = y.size(-1);
            Tensor grad = Tensor::Empty(shape, x.dtype(), x.device());
            Call<op::Gemm>(grad, x, y, Tensor(), false);
            return raw::To(raw::SumToShape(grad, target), dtype);
          };
          if (context.NeedsGrad(0)) {
            context.SetGrad(0, product(grad_out, SwapLastTwo(right.Unpack()), a_shape, a_dtype));
          }
          if (context.NeedsGrad(1)) {
            context.SetGrad(1, product(SwapLastTwo(left.Unpack()), grad_out, b_shape, b_dtype));
          }
        });
  }
  return out;
}

}  // namespace infini_train
