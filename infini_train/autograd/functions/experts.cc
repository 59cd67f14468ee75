#include <fmt/format.h>

#include <utility>

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
using raw::GemmOperand;

void CheckGroupedLinear(const Tensor& x, const Tensor& weight, const Tensor& counts) {
  if (x.rank() != 2 || weight.rank() != 3 || x.size(1) != weight.size(2)) {
    throw Error(
        fmt::format("GroupedLinear: expected x [rows, in] and weight [groups, out, in], got {} and "
                    "{}",
                    x.shape().ToString(), weight.shape().ToString()));
  }
  if (counts.dtype() != DataType::kInt64 || !(counts.shape() == Dims{weight.size(0)})) {
    throw Error(fmt::format("GroupedLinear: expected int64 counts of shape [{}], got {} {}",
                            weight.size(0), ToString(counts.dtype()), counts.shape().ToString()));
  }
}

/// grad_out^T x of each group, where the gradient has been until now or in memory of its own.
void SetWeightGrad(BackwardContext& context, const Tensor& grad_out, const Tensor& x,
                   const Tensor& counts, DataType weight_dtype) {
  const DataType dtype = grad_out.dtype();
  Tensor grad_weight = context.AccumulationTarget(1);
  const bool accumulate = grad_weight.defined() && detail::GemmWrites(dtype, grad_weight.dtype());
  if (!accumulate) {
    grad_weight = Tensor::Empty({counts.size(0), grad_out.size(1), x.size(1)},
                                detail::GemmResultType(dtype, weight_dtype), grad_out.device());
  }
  Call<op::KGroupedGemm>(grad_weight, raw::Transpose(grad_out, 0, 1), x, counts, accumulate);
  if (!accumulate) context.SetGrad(1, raw::To(std::move(grad_weight), weight_dtype));
}

}  // namespace

Tensor GroupedLinear(const Tensor& x, const Tensor& weight, const Tensor& counts) {
  CheckGroupedLinear(x, weight, counts);
  const DataType dtype = detail::MatmulDataType("GroupedLinear", x, weight);
  const Tensor product_weight = GemmOperand(raw::To(weight, dtype));
  const Tensor rows = GemmOperand(raw::To(x, dtype));
  const Tensor row_counts = raw::Contiguous(counts);
  Tensor out = Tensor::Empty({rows.size(0), weight.size(1)}, dtype, x.device());
  Call<op::GroupedGemm>(out, rows, raw::Transpose(product_weight, 1, 2), row_counts, false);
  if (ShouldRecord({&x, &weight})) {
    Record("GroupedLinear", {&out}, {&x, &weight},
           [input = weight.requires_grad() ? SavedTensor(rows) : SavedTensor(),
            product_weight = x.requires_grad() ? SavedTensor(product_weight) : SavedTensor(),
            counts = SavedTensor(row_counts), x_dtype = x.dtype(),
            weight_dtype = weight.dtype()](BackwardContext& context) {
             const Tensor grad_out = raw::Contiguous(context.TakeGradOutput());
             const Tensor row_counts = counts.Unpack();
             if (context.NeedsGrad(1)) {
               SetWeightGrad(context, grad_out, GemmOperand(input.Unpack()), row_counts,
                             weight_dtype);
             }
             if (!context.NeedsGrad(0)) return;
             const Tensor weight = GemmOperand(product_weight.Unpack());
             Tensor grad_x = Tensor::Empty({grad_out.size(0), weight.size(2)}, grad_out.dtype(),
                                           grad_out.device());
             Call<op::GroupedGemm>(grad_x, grad_out, weight, row_counts, false);
             context.SetGrad(0, raw::To(std::move(grad_x), x_dtype));
           });
  }
  return out;
}

}  // namespace infini_train
