#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/functions/linear.h"
#include "infini_train/autograd/node.h"
#include "infini_train/autograd/selective_recompute.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::SavedTensor;
using autograd::ShouldRecord;
using detail::ProductInput;
using detail::ProductWeight;
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

/// Throws Error unless rows is int64 [tokens, choices]; -1 takes any extent.
void CheckRows(std::string_view name, const Tensor& rows, std::int64_t tokens,
               std::int64_t choices) {
  const bool valid = rows.dtype() == DataType::kInt64 && rows.rank() == 2 &&
                     (tokens < 0 || rows.size(0) == tokens) &&
                     (choices < 0 || rows.size(1) == choices);
  if (valid) return;
  const auto extent = [](std::int64_t value, const char* any) {
    return value < 0 ? std::string(any) : std::to_string(value);
  };
  throw Error(fmt::format("{}: expected rows int64 [{}, {}], got {} {}", name,
                          extent(tokens, "tokens"), extent(choices, "choices"),
                          ToString(rows.dtype()), rows.shape().ToString()));
}

/// Row t of the sum of the rows of y that rows[t] names, times weights where there are any.
Tensor UnpermuteRows(const Tensor& y, const Tensor& rows, const Tensor& weights) {
  Tensor out = Tensor::Empty({rows.size(0), y.size(1)}, y.dtype(), y.device());
  Call<op::ExpertUnpermute>(out, y, rows, weights);
  return out;
}

/// The rows of x where `rows` says, times weights where there are any.
Tensor PermuteRows(const Tensor& x, const Tensor& rows, const Tensor& weights) {
  Tensor out = Tensor::Empty({rows.numel(), x.size(1)}, x.dtype(), x.device());
  Call<op::ExpertPermute>(out, x, rows, weights);
  return out;
}

}  // namespace

ExpertOrder SortByExpert(const Tensor& experts, std::int64_t num_experts) {
  detail::CheckIndex("SortByExpert", experts);
  if (experts.rank() != 2 || num_experts < 1) {
    throw Error(
        fmt::format("SortByExpert: expected experts [tokens, choices] and 1 or more of "
                    "them, got {} and {}",
                    experts.shape().ToString(), num_experts));
  }
  ExpertOrder order{Tensor::Empty(experts.shape(), DataType::kInt64, experts.device()),
                    Tensor::Empty({num_experts}, DataType::kInt64, experts.device())};
  Call<op::ExpertSort>(order.rows, order.counts, raw::Contiguous(experts));
  return order;
}

Tensor ExpertPermute(const Tensor& x, const Tensor& rows) {
  detail::CheckFloating("ExpertPermute", x);
  if (x.rank() != 2) {
    throw Error(fmt::format("ExpertPermute: expected x [tokens, C], got {}", x.shape().ToString()));
  }
  CheckRows("ExpertPermute", rows, x.size(0), -1);
  const Tensor places = raw::Contiguous(rows);
  const Tensor tokens = raw::Contiguous(x);
  Tensor out = PermuteRows(tokens, places, Tensor());
  if (ShouldRecord({&x})) {
    Record("ExpertPermute", {&out}, {&x}, [places = SavedTensor(places)](BackwardContext& context) {
      const Tensor grad = raw::Contiguous(context.TakeGradOutput());
      context.SetGrad(0, UnpermuteRows(grad, places.Unpack(), Tensor()));
    });
    if (SelectiveRecompute::Enabled()) {
      // Where the tokens are kept, they are fewer than the rows.
      autograd::SetRecompute(out, [input = ProductInput(x, tokens), places = SavedTensor(places)] {
        return PermuteRows(raw::Contiguous(input.Unpack()), places.Unpack(), Tensor());
      });
    }
  }
  return out;
}

Tensor ExpertUnpermute(const Tensor& y, const Tensor& rows, const Tensor& weights) {
  detail::CheckFloating("ExpertUnpermute", y);
  detail::CheckFloating("ExpertUnpermute", weights);
  if (y.rank() != 2 || weights.rank() != 2 || y.size(0) != weights.numel()) {
    throw Error(
        fmt::format("ExpertUnpermute: expected y [tokens * choices, C] and weights "
                    "[tokens, choices], got {} and {}",
                    y.shape().ToString(), weights.shape().ToString()));
  }
  CheckRows("ExpertUnpermute", rows, weights.size(0), weights.size(1));
  const Tensor places = raw::Contiguous(rows);
  const Tensor values = raw::Contiguous(y);
  const Tensor factors = raw::Contiguous(raw::To(weights, detail::StatDataType(y)));
  Tensor out = UnpermuteRows(values, places, factors);
  if (ShouldRecord({&y, &weights})) {
    Record("ExpertUnpermute", {&out}, {&y, &weights},
           [places = SavedTensor(places),
            values = weights.requires_grad() ? SavedTensor(values) : SavedTensor(),
            factors = SavedTensor(factors),
            weights_dtype = weights.dtype()](BackwardContext& context) {
             const Tensor grad = raw::Contiguous(context.TakeGradOutput());
             const Tensor rows = places.Unpack();
             const Tensor weights = factors.Unpack();
             if (context.NeedsGrad(1)) {
               Tensor grad_weights = Tensor::EmptyLike(weights);
               Call<op::ExpertWeightsBackward>(grad_weights, grad, values.Unpack(), rows);
               context.SetGrad(1, raw::To(std::move(grad_weights), weights_dtype));
             }
             if (context.NeedsGrad(0)) context.SetGrad(0, PermuteRows(grad, rows, weights));
           });
  }
  return out;
}

Tensor GroupedLinear(const Tensor& x, const Tensor& weight, const Tensor& counts) {
  CheckGroupedLinear(x, weight, counts);
  const DataType dtype = detail::MatmulDataType("GroupedLinear", x, weight);
  const Tensor product_weight = GemmOperand(detail::ProductParameter(weight, dtype));
  const Tensor rows = GemmOperand(raw::To(x, dtype));
  const Tensor row_counts = raw::Contiguous(counts);
  Tensor out = Tensor::Empty({rows.size(0), weight.size(1)}, dtype, x.device());
  Call<op::GroupedGemm>(out, rows, raw::Transpose(product_weight, 1, 2), row_counts, false);
  if (ShouldRecord({&x, &weight})) {
    Record("GroupedLinear", {&out}, {&x, &weight},
           [input = weight.requires_grad() ? ProductInput(x, rows) : ProductInput(),
            product_weight = ProductWeight(weight, product_weight, x.requires_grad()),
            counts = SavedTensor(row_counts), x_dtype = x.dtype(),
            weight_dtype = weight.dtype()](BackwardContext& context) {
             const Tensor grad_out = raw::Contiguous(context.TakeGradOutput());
             const Tensor row_counts = counts.Unpack();
             if (context.NeedsGrad(1)) {
               SetWeightGrad(context, grad_out, GemmOperand(input.Unpack()), row_counts,
                             weight_dtype);
             }
             if (!context.NeedsGrad(0)) return;
             const Tensor weight = product_weight.Unpack();
             Tensor grad_x = Tensor::Empty({grad_out.size(0), weight.size(2)}, grad_out.dtype(),
                                           grad_out.device());
             Call<op::GroupedGemm>(grad_x, grad_out, weight, row_counts, false);
             context.SetGrad(0, raw::To(std::move(grad_x), x_dtype));
           });
  }
  return out;
}

}  // namespace infini_train
