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

void CheckNormArguments(std::string_view name, const Tensor& x, const Tensor& parameter) {
  detail::CheckFloating(name, x);
  if (x.rank() == 0) throw Error(fmt::format("{}: expected at least one dimension", name));
  if (parameter.defined() && !(parameter.shape() == Dims{x.size(-1)})) {
    throw Error(fmt::format("{}: expected parameters of shape [{}], got {}", name, x.size(-1),
                            parameter.shape().ToString()));
  }
}

/// The norm ops take contiguous parameters of x's type or float32.
Tensor NormParameter(const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined()) return parameter;
  const bool wider = parameter.dtype() == DataType::kFloat32 && x.dtype() != DataType::kFloat64;
  return raw::Contiguous(wider ? parameter : raw::To(parameter, x.dtype()));
}

Tensor AsRows(const Tensor& x) {
  return raw::AsMatrix(raw::Contiguous(x));
}

Tensor RowStatistic(const Tensor& rows) {
  return Tensor::Empty({rows.size(0)}, detail::StatDataType(rows), rows.device());
}

Tensor EmptyLikeIf(bool needed, const Tensor& x) {
  return needed ? Tensor::EmptyLike(x) : Tensor();
}

}  // namespace

Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  CheckNormArguments("LayerNorm", x, weight);
  CheckNormArguments("LayerNorm", x, bias);
  const Tensor rows = AsRows(x);
  const Tensor scale = NormParameter(weight, x);
  Tensor out = Tensor::EmptyLike(rows);
  Tensor mean = RowStatistic(rows);
  Tensor rstd = RowStatistic(rows);
  Call<op::LayerNorm>(out, mean, rstd, rows, scale, NormParameter(bias, x), eps);
  Tensor result = raw::Reshape(out, x.shape());
  if (ShouldRecord({&x, &weight, &bias})) {
    Record("LayerNorm", {&result}, {&x, &weight, &bias},
           [rows = SavedTensor(rows), scale = SavedTensor(scale), mean = SavedTensor(mean),
            rstd = SavedTensor(rstd), shape = x.shape(),
            weight_dtype = weight.defined() ? weight.dtype() : x.dtype(),
            bias_dtype = bias.defined() ? bias.dtype() : x.dtype()](BackwardContext& context) {
             const Tensor x = rows.Unpack();
             const Tensor weight = scale.Unpack();
             const Tensor grad_out = AsRows(context.TakeGradOutput());
             // Without a weight the bias's gradient still comes in x's type.
             const Tensor& like = weight.defined() ? weight : x;
             Tensor grad_x = Tensor::EmptyLike(x);
             Tensor grad_weight = EmptyLikeIf(context.NeedsGrad(1), weight);
             Tensor grad_bias = context.NeedsGrad(2)
                                    ? Tensor::Empty({x.size(1)}, like.dtype(), x.device())
                                    : Tensor();
             Call<op::LayerNormBackward>(grad_x, grad_weight, grad_bias, grad_out, x, weight,
                                         mean.Unpack(), rstd.Unpack());
             if (context.NeedsGrad(0)) context.SetGrad(0, raw::Reshape(grad_x, shape));
             if (context.NeedsGrad(1)) context.SetGrad(1, raw::To(grad_weight, weight_dtype));
             if (context.NeedsGrad(2)) context.SetGrad(2, raw::To(grad_bias, bias_dtype));
           });
  }
  return result;
}

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  CheckNormArguments("RmsNorm", x, weight);
  const Tensor rows = AsRows(x);
  const Tensor scale = NormParameter(weight, x);
  Tensor out = Tensor::EmptyLike(rows);
  Tensor rstd = RowStatistic(rows);
  Call<op::RmsNorm>(out, rstd, rows, scale, eps);
  Tensor result = raw::Reshape(out, x.shape());
  if (ShouldRecord({&x, &weight})) {
    Record("RmsNorm", {&result}, {&x, &weight},
           [rows = SavedTensor(rows), scale = SavedTensor(scale), rstd = SavedTensor(rstd),
            shape = x.shape(), weight_dtype = weight.defined() ? weight.dtype() : x.dtype()](
               BackwardContext& context) {
             const Tensor x = rows.Unpack();
             const Tensor weight = scale.Unpack();
             Tensor grad_x = Tensor::EmptyLike(x);
             Tensor grad_weight = EmptyLikeIf(context.NeedsGrad(1), weight);
             Call<op::RmsNormBackward>(grad_x, grad_weight, AsRows(context.TakeGradOutput()), x,
                                       weight, rstd.Unpack());
             if (context.NeedsGrad(0)) context.SetGrad(0, raw::Reshape(grad_x, shape));
             if (context.NeedsGrad(1)) context.SetGrad(1, raw::To(grad_weight, weight_dtype));
           });
  }
  return result;
}

}  // namespace infini_train
