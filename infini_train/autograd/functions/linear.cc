#include <fmt/format.h>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/functions/linear.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::SavedTensor;
using autograd::ShouldRecord;
using detail::ProductInput;
using detail::ProductWeight;
using raw::GemmOperand;

/// The transpose of the last two dimensions, without history.
Tensor SwapLastTwo(const Tensor& x) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  const int last = shape.size() - 1;
  std::swap(shape[last - 1], shape[last]);
  std::swap(strides[last - 1], strides[last]);
  return x.AsStrided(shape, strides, x.offset());
}

/// What a linear keeps of its parameters for backward.
struct LinearParameters {
  /// `product` is the weight in the type of the product. `keep`: whether backward needs it.
  LinearParameters(const Tensor& weight, const Tensor& bias, const Tensor& product, bool keep)
      : product_weight(weight, product, keep),
        weight_dtype(weight.dtype()),
        bias_dtype(bias.defined() ? bias.dtype() : product.dtype()) {}

  ProductWeight product_weight;
  DataType weight_dtype;
  DataType bias_dtype;
};

/// Sets the gradients of a weight and its bias, inputs `index` and `index + 1` of the function,
/// from those of the rows of x @ weight^T: grad_out^T x and the columns' sums. `known_bias_grad`:
/// these sums, where they are there already.
void SetParameterGrads(BackwardContext& context, int index, const LinearParameters& parameters,
                       const Tensor& grad_out, const Tensor& input, Tensor known_bias_grad = {}) {
  const DataType dtype = grad_out.dtype();
  const auto set_bias_grad = [&](Tensor grad) {
    context.SetGrad(index + 1, raw::To(std::move(grad), parameters.bias_dtype));
  };
  const auto empty_bias_grad = [&](DataType sums_dtype) {
    return Tensor::Empty({grad_out.size(1)}, sums_dtype, grad_out.device());
  };
  const bool sums_columns = context.NeedsGrad(index + 1) && !known_bias_grad.defined();
  if (known_bias_grad.defined() && context.NeedsGrad(index + 1))
    set_bias_grad(std::move(known_bias_grad));
  if (!context.NeedsGrad(index)) {
    if (!sums_columns) return;
    Tensor grad_bias = empty_bias_grad(dtype);
    ColumnSums(grad_bias, grad_out);
    set_bias_grad(std::move(grad_bias));
    return;
  }
  const Tensor x = GemmOperand(input);
  const Tensor grad_transposed = SwapLastTwo(grad_out);
  Tensor grad_weight = context.AccumulationTarget(index);
  const bool accumulate = grad_weight.defined() && detail::GemmWrites(dtype, grad_weight.dtype());
  if (!accumulate) {
    grad_weight =
        Tensor::Empty({grad_out.size(1), x.size(1)},
                      detail::GemmResultType(dtype, parameters.weight_dtype), grad_out.device());
  }
  if (sums_columns) {
    Tensor grad_bias = empty_bias_grad(detail::GemmResultType(dtype, parameters.bias_dtype));
    Call<op::GemmRowSums>(grad_weight, grad_bias, grad_transposed, x, accumulate);
    set_bias_grad(std::move(grad_bias));
  } else {
    Call<op::Gemm>(grad_weight, grad_transposed, x, Tensor(), accumulate);
  }
  if (!accumulate) {
    context.SetGrad(index, raw::To(std::move(grad_weight), parameters.weight_dtype));
  }
}

/// Sets the gradient of x, input 0 of the function, from that of x @ weight^T.
void SetInputGrad(BackwardContext& context, const LinearParameters& parameters,
                  const Tensor& grad_out, const Dims& x_shape, DataType x_dtype) {
  const Tensor weight = parameters.product_weight.Unpack();
  Tensor grad_x =
      Tensor::Empty({grad_out.size(0), weight.size(1)}, grad_out.dtype(), grad_out.device());
  Call<op::Gemm>(grad_x, grad_out, weight, Tensor(), false);
  context.SetGrad(0, raw::To(raw::Reshape(grad_x, x_shape), x_dtype));
}

/// x [.., in] as the rows of a product in `dtype`.
Tensor ProductRows(const Tensor& x, DataType dtype) {
  return GemmOperand(raw::AsMatrix(raw::To(x, dtype)));
}

/// Whether backward computes GELU anew instead of keeping its result, a tenth of a block's
/// activations: beside products of wide numbers a pass over memory is nothing.
bool RecomputesGelu(DataType dtype) {
  return SizeOf(dtype) >= SizeOf(DataType::kFloat32);
}

Tensor ProductBias(const Tensor& bias, DataType dtype) {
  return bias.defined() ? raw::Contiguous(detail::ProductParameter(bias, dtype)) : Tensor();
}

}  // namespace

Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.rank() < 1) throw Error("Linear: expected x [.., in], got a scalar");
  detail::CheckLinear("Linear", x.size(-1), weight, bias);
  const DataType dtype = detail::MatmulDataType("Linear", x, weight);
  const Tensor product_weight = detail::ProductParameter(weight, dtype);
  const Tensor rows = ProductRows(x, dtype);
  Tensor out = Tensor::Empty({rows.size(0), weight.size(0)}, dtype, x.device());
  Call<op::Gemm>(out, rows, SwapLastTwo(GemmOperand(product_weight)), ProductBias(bias, dtype),
                 false);
  Tensor result = detail::InShapeOf(x, out);
  if (ShouldRecord({&x, &weight, &bias})) {
    auto& node =
        Record("Linear", {&result}, {&x, &weight, &bias},
               [input = weight.requires_grad() ? ProductInput(x, rows) : ProductInput(),
                parameters = LinearParameters(weight, bias, product_weight, x.requires_grad()),
                x_shape = x.shape(), x_dtype = x.dtype()](BackwardContext& context) {
                 const Tensor grad_out = raw::AsMatrix(raw::Contiguous(context.TakeGradOutput()));
                 SetParameterGrads(context, 1, parameters, grad_out, input.Unpack(),
                                   context.grad_output_column_sums());
                 if (context.NeedsGrad(0)) {
                   SetInputGrad(context, parameters, grad_out, x_shape, x_dtype);
                 }
               });
    node.set_uses_column_sums(bias.defined() && bias.requires_grad());
  }
  return result;
}

Tensor GeluMlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
               const Tensor& proj_weight, const Tensor& proj_bias) {
  if (x.rank() < 1) throw Error("GeluMlp: expected x [.., in], got a scalar");
  detail::CheckLinear("GeluMlp", x.size(-1), fc_weight, fc_bias);
  detail::CheckLinear("GeluMlp", fc_weight.size(0), proj_weight, proj_bias);
  const DataType dtype = PromoteTypes(detail::MatmulDataType("GeluMlp", x, fc_weight),
                                      detail::MatmulDataType("GeluMlp", x, proj_weight));
  const Tensor fc = detail::ProductParameter(fc_weight, dtype);
  const Tensor proj = detail::ProductParameter(proj_weight, dtype);
  const Tensor rows = ProductRows(x, dtype);
  Tensor pre = Tensor::Empty({rows.size(0), fc.size(0)}, dtype, x.device());
  Tensor hidden = Tensor::EmptyLike(pre);
  Call<op::GemmGelu>(hidden, pre, rows, SwapLastTwo(GemmOperand(fc)), ProductBias(fc_bias, dtype));
  Tensor out = Tensor::Empty({rows.size(0), proj.size(0)}, dtype, x.device());
  Call<op::Gemm>(out, hidden, SwapLastTwo(GemmOperand(proj)), ProductBias(proj_bias, dtype), false);
  Tensor result = detail::InShapeOf(x, out);
  if (ShouldRecord({&x, &fc_weight, &fc_bias, &proj_weight, &proj_bias})) {
    auto& node = Record(
        "GeluMlp", {&result}, {&x, &fc_weight, &fc_bias, &proj_weight, &proj_bias},
        [input = fc_weight.requires_grad() ? ProductInput(x, rows) : ProductInput(),
         pre = SavedTensor(pre),
         hidden = proj_weight.requires_grad() && !RecomputesGelu(dtype) ? SavedTensor(hidden)
                                                                        : SavedTensor(),
         fc = LinearParameters(fc_weight, fc_bias, fc, x.requires_grad()),
         proj = LinearParameters(proj_weight, proj_bias, proj, true), x_shape = x.shape(),
         x_dtype = x.dtype()](BackwardContext& context) {
          const Tensor grad_out = raw::AsMatrix(raw::Contiguous(context.TakeGradOutput()));
          const Tensor pre_values = pre.Unpack();
          Tensor activation = hidden.Unpack();
          if (!activation.defined() && context.NeedsGrad(3)) {
            activation = Tensor::EmptyLike(pre_values);
            Call<op::Gelu>(activation, pre_values, /*tanh_approximation=*/true);
          }
          SetParameterGrads(context, 3, proj, grad_out, std::exchange(activation, {}),
                            context.grad_output_column_sums());
          if (!context.NeedsGrad(0) && !context.NeedsGrad(1) && !context.NeedsGrad(2)) return;
          Tensor grad_pre = Tensor::EmptyLike(pre_values);
          Tensor fc_bias_grad =
              context.NeedsGrad(2)
                  ? Tensor::Empty({grad_pre.size(1)}, grad_pre.dtype(), grad_pre.device())
                  : Tensor();
          Call<op::GemmGeluBackward>(grad_pre, fc_bias_grad, grad_out, proj.product_weight.Unpack(),
                                     pre_values);
          SetParameterGrads(context, 1, fc, grad_pre, input.Unpack(), std::move(fc_bias_grad));
          if (context.NeedsGrad(0)) SetInputGrad(context, fc, grad_pre, x_shape, x_dtype);
        });
    node.set_uses_column_sums(proj_bias.defined() && proj_bias.requires_grad());
  }
  return result;
}

Tensor SwiGluMlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
                 const Tensor& proj_weight, const Tensor& proj_bias) {
  if (x.rank() < 1) throw Error("SwiGluMlp: expected x [.., in], got a scalar");
  detail::CheckLinear("SwiGluMlp", x.size(-1), fc_weight, fc_bias);
  if (fc_weight.size(0) % 2 != 0) {
    throw Error(fmt::format("SwiGluMlp: expected fc_weight [2 F, in] = [gate | up], got {}",
                            fc_weight.shape().ToString()));
  }
  const std::int64_t width = fc_weight.size(0) / 2;
  detail::CheckLinear("SwiGluMlp", width, proj_weight, proj_bias);
  const DataType dtype = PromoteTypes(detail::MatmulDataType("SwiGluMlp", x, fc_weight),
                                      detail::MatmulDataType("SwiGluMlp", x, proj_weight));
  const Tensor fc = detail::ProductParameter(fc_weight, dtype);
  const Tensor proj = detail::ProductParameter(proj_weight, dtype);
  const Tensor rows = ProductRows(x, dtype);
  Tensor pre = Tensor::Empty({rows.size(0), 2 * width}, dtype, x.device());
  Call<op::Gemm>(pre, rows, SwapLastTwo(GemmOperand(fc)), ProductBias(fc_bias, dtype), false);
  Tensor out = Tensor::Empty({rows.size(0), proj.size(0)}, dtype, x.device());
  {
    Tensor hidden = Tensor::Empty({rows.size(0), width}, dtype, x.device());
    Call<op::SwiGlu>(hidden, pre);
    Call<op::Gemm>(out, hidden, SwapLastTwo(GemmOperand(proj)), ProductBias(proj_bias, dtype),
                   false);
  }
  Tensor result = detail::InShapeOf(x, out);
  if (ShouldRecord({&x, &fc_weight, &fc_bias, &proj_weight, &proj_bias})) {
    auto& node = Record(
        "SwiGluMlp", {&result}, {&x, &fc_weight, &fc_bias, &proj_weight, &proj_bias},
        [input = fc_weight.requires_grad() ? ProductInput(x, rows) : ProductInput(),
         pre = SavedTensor(pre), fc = LinearParameters(fc_weight, fc_bias, fc, x.requires_grad()),
         proj = LinearParameters(proj_weight, proj_bias, proj, true), x_shape = x.shape(),
         x_dtype = x.dtype()](BackwardContext& context) {
          const Tensor grad_out = raw::AsMatrix(raw::Contiguous(context.TakeGradOutput()));
          const Tensor pre_values = pre.Unpack();
          const Tensor proj_weight = proj.product_weight.Unpack();
          Tensor grad_hidden = Tensor::Empty({grad_out.size(0), proj_weight.size(1)},
                                             grad_out.dtype(), grad_out.device());
          Call<op::Gemm>(grad_hidden, grad_out, proj_weight, Tensor(), false);
          Tensor grad_pre = Tensor::EmptyLike(pre_values);
          Tensor hidden = context.NeedsGrad(3) ? Tensor::EmptyLike(grad_hidden) : Tensor();
          Call<op::SwiGluBackward>(grad_pre, hidden, std::exchange(grad_hidden, {}), pre_values);
          SetParameterGrads(context, 3, proj, grad_out, std::exchange(hidden, {}),
                            context.grad_output_column_sums());
          SetParameterGrads(context, 1, fc, grad_pre, input.Unpack());
          if (context.NeedsGrad(0)) SetInputGrad(context, fc, grad_pre, x_shape, x_dtype);
        });
    node.set_uses_column_sums(proj_bias.defined() && proj_bias.requires_grad());
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
