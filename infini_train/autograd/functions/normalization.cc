#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "infini_train/autograd/fp8.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/grad_mode.h"
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

void CheckNormArguments(std::string_view name, const Tensor& x, const Tensor& parameter) {
  detail::CheckFloating(name, x);
  if (x.rank() == 0) throw Error(fmt::format("{}: expected at least one dimension", name));
  if (parameter.defined() && !(parameter.shape() == Dims{x.size(-1)})) {
    throw Error(fmt::format("{}: expected parameters of shape [{}], got {}", name, x.size(-1),
                            parameter.shape().ToString()));
  }
}

Tensor AsRows(const Tensor& x) {
  return raw::AsMatrix(raw::Contiguous(x));
}

Tensor RowStatistic(const Tensor& rows) {
  return Tensor::Empty({rows.size(0)}, detail::StatDataType(rows), rows.device());
}

/// The two norms differ in their mean and bias.
enum class NormKind : std::uint8_t { kLayer, kRms };

/// Shape and types of the inputs, to which their gradients return.
struct NormInputs {
  NormInputs(const Tensor& x, const Tensor& weight, const Tensor& bias)
      : shape(x.shape()),
        weight_dtype(weight.defined() ? weight.dtype() : x.dtype()),
        bias_dtype(bias.defined() ? bias.dtype() : x.dtype()) {}

  Dims shape;
  DataType weight_dtype;
  DataType bias_dtype;
};

/// For whom a norm is quantised, and what becomes of it.
struct Quantization {
  const Fp8LinearState& consumer;
  bool transposed;
  Fp8Matrix matrix = {};
};

/// A tensor of the shape and type of x, of one number that nobody reads.
Tensor HandleLike(const Tensor& x) {
  return raw::Expand(Tensor::Empty({}, x.dtype(), x.device()), x.shape());
}

/// LayerNorm or RmsNorm of x, or of x + residual where that is defined: {sum, out}. `with_sum`:
/// the sum has a gradient of its own, which backward adds to the norm's on the way. With a
/// `quantization` out is but a handle.
std::pair<Tensor, Tensor> Norm(NormKind kind, const Tensor& x, const Tensor& residual,
                               const Tensor& weight, const Tensor& bias, double eps, bool with_sum,
                               Quantization* quantization = nullptr) {
  const bool adds = residual.defined();
  const bool is_layer = kind == NormKind::kLayer;
  const std::string_view name =
      is_layer ? (adds ? "AddLayerNorm" : "LayerNorm") : (adds ? "AddRmsNorm" : "RmsNorm");
  CheckNormArguments(name, x, weight);
  CheckNormArguments(name, x, bias);
  const Tensor rows = AsRows(x);
  const Tensor scale = detail::NormParameter(weight, x.dtype());
  Tensor sum = adds ? Tensor::EmptyLike(rows) : rows;
  Tensor out = quantization == nullptr ? Tensor::EmptyLike(rows) : Tensor();
  Tensor rstd = RowStatistic(rows);
  Tensor mean = is_layer ? RowStatistic(rows) : Tensor();
  if (quantization != nullptr) {
    const Tensor other = adds ? AsRows(residual) : Tensor();
    const Tensor offset = is_layer ? detail::NormParameter(bias, x.dtype()) : Tensor();
    const Fp8Pass pass = [&, added = adds ? sum : Tensor()](
                             Tensor& codes, Tensor& transposed, Tensor&, Tensor& amax,
                             const Tensor& fp8_scale, Fp8Format format) mutable {
      Call<op::Fp8QuantizeNorm>(codes, transposed, amax, added, mean, rstd, rows, other, scale,
                                offset, fp8_scale, format, eps);
    };
    const bool record = autograd::GradEnabled();
    quantization->matrix = quantization->consumer.QuantizeInput(
        rows.shape(), {.transposed = record && quantization->transposed}, pass, record);
  } else if (is_layer && adds) {
    Call<op::AddLayerNorm>(sum, out, mean, rstd, rows, AsRows(residual), scale,
                           detail::NormParameter(bias, x.dtype()), eps);
  } else if (is_layer) {
    Call<op::LayerNorm>(out, mean, rstd, rows, scale, detail::NormParameter(bias, x.dtype()), eps);
  } else if (adds) {
    Call<op::AddRmsNorm>(sum, out, rstd, rows, AsRows(residual), scale, eps);
  } else {
    Call<op::RmsNorm>(out, rstd, rows, scale, eps);
  }
  std::pair<Tensor, Tensor> result{adds ? raw::Reshape(sum, x.shape()) : x.Detach(),
                                   out.defined() ? raw::Reshape(out, x.shape()) : HandleLike(x)};
  if (!ShouldRecord({&x, &residual, &weight, &bias})) return result;
  const SavedTensor saved_sum(sum);
  auto backward = [is_layer, with_sum, saved_rows = saved_sum, saved_scale = SavedTensor(scale),
                   saved_mean = SavedTensor(mean), saved_rstd = SavedTensor(rstd),
                   inputs = NormInputs(x, weight, bias)](BackwardContext& context) {
    const Tensor rows = saved_rows.Unpack();
    const Tensor scale = saved_scale.Unpack();
    const Tensor rstd = saved_rstd.Unpack();
    Tensor grad_out = context.TakeGradOutput(with_sum ? 1 : 0);
    grad_out = grad_out.defined() ? AsRows(grad_out)
                                  : raw::Zeros(rows.shape(), rows.dtype(), rows.device());
    Tensor grad_sum = with_sum ? context.TakeGradOutput(0) : Tensor();
    if (grad_sum.defined()) grad_sum = AsRows(grad_sum);
    Tensor grad_x = Tensor::EmptyLike(rows);
    Tensor grad_weight = context.NeedsGrad(2) ? Tensor::EmptyLike(scale) : Tensor();
    // Without a weight the bias's gradient still comes in x's type.
    const DataType parameter_dtype = scale.defined() ? scale.dtype() : rows.dtype();
    Tensor grad_bias = context.NeedsGrad(3)
                           ? Tensor::Empty({rows.size(1)}, parameter_dtype, rows.device())
                           : Tensor();
    Tensor column_sums;
    if (is_layer && grad_sum.defined()) {
      if (context.WantsColumnSums(0) || context.WantsColumnSums(1)) {
        column_sums = Tensor::Empty({rows.size(1)}, parameter_dtype, rows.device());
      }
      Call<op::AddLayerNormBackward>(grad_x, grad_weight, grad_bias, column_sums, grad_out,
                                     grad_sum, rows, scale, saved_mean.Unpack(), rstd);
    } else if (is_layer) {
      Call<op::LayerNormBackward>(grad_x, grad_weight, grad_bias, grad_out, rows, scale,
                                  saved_mean.Unpack(), rstd);
    } else if (grad_sum.defined()) {
      Call<op::AddRmsNormBackward>(grad_x, grad_weight, grad_out, grad_sum, rows, scale, rstd);
    } else {
      Call<op::RmsNormBackward>(grad_x, grad_weight, grad_out, rows, scale, rstd);
    }
    const Tensor grad_input = raw::Reshape(grad_x, inputs.shape);
    for (const int input : {0, 1}) {
      // To nobody else, so that a bias may keep their memory.
      const bool wants_sums = context.WantsColumnSums(input);
      if (context.NeedsGrad(input))
        context.SetGrad(input, grad_input, wants_sums ? column_sums : Tensor());
    }
    if (context.NeedsGrad(2)) context.SetGrad(2, raw::To(grad_weight, inputs.weight_dtype));
    if (context.NeedsGrad(3)) context.SetGrad(3, raw::To(grad_bias, inputs.bias_dtype));
  };
  if (with_sum) {
    Record(name, {&result.first, &result.second}, {&x, &residual, &weight, &bias},
           std::move(backward));
  } else {
    Record(name, {&result.second}, {&x, &residual, &weight, &bias}, std::move(backward));
  }
  if (SelectiveRecompute::Enabled() && quantization == nullptr) {
    autograd::SetRecompute(result.second,
                           [is_layer, saved_sum, saved_scale = SavedTensor(scale),
                            saved_bias = SavedTensor(detail::NormParameter(bias, x.dtype())), eps] {
                             const Tensor rows = saved_sum.Unpack();
                             Tensor out = Tensor::EmptyLike(rows);
                             Tensor rstd = RowStatistic(rows);
                             if (is_layer) {
                               Tensor mean = RowStatistic(rows);
                               Call<op::LayerNorm>(out, mean, rstd, rows, saved_scale.Unpack(),
                                                   saved_bias.Unpack(), eps);
                             } else {
                               Call<op::RmsNorm>(out, rstd, rows, saved_scale.Unpack(), eps);
                             }
                             return out;
                           });
  }
  return result;
}

/// {sum, norm of it}; the norm makes the sum itself where the stream meets a branch of its own
/// shape and type.
std::pair<Tensor, Tensor> AddNorm(NormKind kind, const Tensor& x, const Tensor& residual,
                                  const Tensor& weight, const Tensor& bias, double eps,
                                  Quantization* quantization = nullptr) {
  const bool fits =
      !residual.defined() || (x.shape() == residual.shape() && x.dtype() == residual.dtype() &&
                              x.device() == residual.device());
  return fits ? Norm(kind, x, residual, weight, bias, eps, true, quantization)
              : Norm(kind, x + residual, {}, weight, bias, eps, true, quantization);
}

std::pair<Tensor, Fp8Activation> QuantizedAddNorm(NormKind kind, const Tensor& x,
                                                  const Tensor& residual, const Tensor& weight,
                                                  const Tensor& bias, double eps,
                                                  const Fp8LinearState& consumer, bool transposed) {
  Quantization quantization{consumer, transposed};
  auto [sum, handle] = AddNorm(kind, x, residual, weight, bias, eps, &quantization);
  return {std::move(sum), {std::move(handle), std::move(quantization.matrix)}};
}

}  // namespace

Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return Norm(NormKind::kLayer, x, {}, weight, bias, eps, false).second;
}

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  return Norm(NormKind::kRms, x, {}, weight, {}, eps, false).second;
}

std::pair<Tensor, Tensor> AddLayerNorm(const Tensor& x, const Tensor& residual,
                                       const Tensor& weight, const Tensor& bias, double eps) {
  return AddNorm(NormKind::kLayer, x, residual, weight, bias, eps);
}

std::pair<Tensor, Tensor> AddRmsNorm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                     double eps) {
  return AddNorm(NormKind::kRms, x, residual, weight, {}, eps);
}

std::pair<Tensor, Fp8Activation> Fp8AddLayerNorm(const Tensor& x, const Tensor& residual,
                                                 const Tensor& weight, const Tensor& bias,
                                                 double eps, const Fp8LinearState& consumer,
                                                 bool transposed) {
  return QuantizedAddNorm(NormKind::kLayer, x, residual, weight, bias, eps, consumer, transposed);
}

std::pair<Tensor, Fp8Activation> Fp8AddRmsNorm(const Tensor& x, const Tensor& residual,
                                               const Tensor& weight, double eps,
                                               const Fp8LinearState& consumer, bool transposed) {
  return QuantizedAddNorm(NormKind::kRms, x, residual, weight, {}, eps, consumer, transposed);
}

}  // namespace infini_train
