#include <fmt/format.h>

#include <utility>

#include "infini_train/autograd/fp8.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::SavedTensor;
using autograd::ShouldRecord;
using State = std::shared_ptr<Fp8LinearState>;

Fp8Pass PassOf(const Tensor& x) {
  return [x](Tensor& out, Tensor& transposed, Tensor& column_sums, Tensor& amax,
             const Tensor& scale, Fp8Format format) {
    Call<op::Fp8Quantize>(out, transposed, column_sums, amax, x, scale, format);
  };
}
Fp8Pass PassOfGelu(const Tensor& x, bool tanh_approximation) {
  return [=](Tensor& out, Tensor& transposed, Tensor&, Tensor& amax, const Tensor& scale,
             Fp8Format format) {
    Call<op::Fp8QuantizeGelu>(out, transposed, amax, x, scale, format, tanh_approximation);
  };
}
Fp8Pass PassOfGeluBackward(const Tensor& grad_y, const Tensor& x, bool tanh_approximation) {
  return [=](Tensor& out, Tensor& transposed, Tensor& column_sums, Tensor& amax,
             const Tensor& scale, Fp8Format format) {
    Call<op::Fp8QuantizeGeluBackward>(out, transposed, column_sums, amax, grad_y, x, scale, format,
                                      tanh_approximation);
  };
}

/// The type of a product's result.
DataType ResultType(std::string_view name, const Tensor& x, const Tensor& weight) {
  const DataType dtype = detail::MatmulDataType(name, x, weight);
  if (dtype != DataType::kFloat32 && dtype != DataType::kBFloat16)
    infini_train::detail::ThrowUnsupportedDataType(name, dtype, "float32 or bfloat16");
  return dtype;
}

/// a [M, K] @ b [N, K]^T + bias, of one copy each of two matrices.
void Multiply(Tensor& out, const Tensor& a, const Fp8Matrix& a_matrix, const Tensor& b,
              const Fp8Matrix& b_matrix, const Tensor& bias = {}, bool accumulate = false) {
  Call<op::Fp8Gemm>(out, a, a_matrix.format, a_matrix.scale, b, b_matrix.format, b_matrix.scale,
                    bias, accumulate);
}

/// One linear of a function: what its forward pass leaves for its backward pass.
class Fp8Product {
 public:
  /// `input_needs_grad`: whether the gradient of the input will be asked for.
  Fp8Product(State state, const Tensor& weight, const Tensor& bias, bool input_needs_grad)
      : state_(std::move(state)),
        updates_(state_->scales().num_updates()),
        weight_shape_(weight.shape()),
        weight_dtype_(weight.dtype()),
        bias_dtype_(bias.defined() ? bias.dtype() : weight.dtype()),
        weight_needs_grad_(weight.requires_grad()),
        input_needs_grad_(input_needs_grad) {}

  /// The numbers of `pass`, [rows, in], as Forward takes them.
  Fp8Matrix QuantizeInput(const Fp8Pass& pass, std::int64_t rows) const {
    const bool record = autograd::GradEnabled();
    return state_->QuantizeInput({rows, weight_shape_[1]},
                                 {.transposed = record && weight_needs_grad_}, pass, record);
  }

  /// The product of the input [rows, in] with weight^T.
  Tensor Forward(const Fp8Matrix& input, const Tensor& weight, const Tensor& bias, DataType dtype) {
    const bool record = autograd::GradEnabled();
    if (record && weight_needs_grad_ && !input.transposed.defined())
      throw Error("Fp8Linear: expected an input with the copy for the weight's gradient");
    const Fp8Matrix matrix = state_->QuantizeWeight(weight, record);
    Tensor out = Tensor::Empty({input.codes.size(0), weight.size(0)}, dtype, weight.device());
    Multiply(out, input.codes, input, matrix.codes, matrix,
             bias.defined() ? raw::Contiguous(detail::ProductParameter(bias, DataType::kBFloat16))
                            : Tensor());
    input_ = {{}, {}, input.scale, input.format};
    weight_ = {{}, {}, matrix.scale, matrix.format};
    if (record && weight_needs_grad_) saved_input_ = SavedTensor(input.transposed);
    if (record && input_needs_grad_) saved_weight_ = SavedTensor(matrix.transposed);
    return out;
  }

  /// Sets the gradients of the weight and bias, inputs `index` and `index + 1` of the function, and
  /// returns the input's in `dtype` where `needs_input`. `pass` quantises the output's gradient,
  /// the sums of whose columns are `column_sums` where they are known.
  Tensor Backward(BackwardContext& context, int index, const Fp8Pass& pass, std::int64_t rows,
                  DataType dtype, bool needs_input, Device device,
                  const Tensor& column_sums = {}) const {
    if (updates_ != state_->scales().num_updates()) {
      throw Error("Fp8Linear: expected backward before the scales' next update");
    }
    const bool needs_weight = context.NeedsGrad(index);
    Fp8Wanted wanted = {needs_input, needs_weight, {}};
    if (context.NeedsGrad(index + 1) && column_sums.defined()) {
      context.SetGrad(index + 1, raw::To(column_sums, bias_dtype_));
    } else if (context.NeedsGrad(index + 1)) {
      const DataType sums = bias_dtype_ == DataType::kFloat32 ? bias_dtype_ : dtype;
      wanted.column_sums = Tensor::Empty({weight_shape_[0]}, sums, device);
    }
    if (!needs_input && !needs_weight && !wanted.column_sums.defined()) return {};
    const Fp8Matrix grad = state_->QuantizeGradient({rows, weight_shape_[0]}, wanted, pass);
    if (wanted.column_sums.defined())
      context.SetGrad(index + 1, raw::To(wanted.column_sums, bias_dtype_));
    if (needs_weight) SetWeightGrad(context, index, grad);
    if (!needs_input) return {};
    Tensor grad_input = Tensor::Empty({rows, weight_shape_[1]}, dtype, device);
    Multiply(grad_input, grad.codes, grad, saved_weight_.Unpack(), weight_);
    return grad_input;
  }

 private:
  void SetWeightGrad(BackwardContext& context, int index, const Fp8Matrix& grad) const {
    const auto writes = [](DataType dtype) {
      return dtype == DataType::kFloat32 || dtype == DataType::kBFloat16;
    };
    Tensor grad_weight = context.AccumulationTarget(index);
    const bool accumulate = grad_weight.defined() && writes(grad_weight.dtype());
    if (!accumulate) {
      grad_weight =
          Tensor::Empty(weight_shape_, writes(weight_dtype_) ? weight_dtype_ : DataType::kFloat32,
                        grad.transposed.device());
    }
    Multiply(grad_weight, grad.transposed, grad, saved_input_.Unpack(), input_, {}, accumulate);
    if (!accumulate) context.SetGrad(index, raw::To(std::move(grad_weight), weight_dtype_));
  }

  State state_;
  std::uint64_t updates_;
  Dims weight_shape_;
  DataType weight_dtype_;
  DataType bias_dtype_;
  bool weight_needs_grad_;
  bool input_needs_grad_;
  Fp8Matrix input_;   // scale and format
  Fp8Matrix weight_;  // scale and format
  SavedTensor saved_input_;
  SavedTensor saved_weight_;
};

Fp8Matrix Quantize(const Fp8Product& product, const Tensor& x) {
  const Tensor rows = raw::AsMatrix(raw::Contiguous(x));
  return product.QuantizeInput(PassOf(rows), rows.size(0));
}

/// `quantized`: x, where it is there in FP8 already.
Tensor LinearOf(const Tensor& x, const Fp8Matrix* quantized, const Tensor& weight,
                const Tensor& bias, const State& state) {
  if (x.rank() < 1) throw Error("Fp8Linear: expected x [.., in], got a scalar");
  detail::CheckLinear("Fp8Linear", x.size(-1), weight, bias);
  const DataType dtype = ResultType("Fp8Linear", x, weight);
  Fp8Product product(state, weight, bias, x.requires_grad());
  const Fp8Matrix input = quantized != nullptr ? *quantized : Quantize(product, x);
  Tensor result = detail::InShapeOf(x, product.Forward(input, weight, bias, dtype));
  if (ShouldRecord({&x, &weight, &bias})) {
    auto& node =
        Record("Fp8Linear", {&result}, {&x, &weight, &bias},
               [product = std::move(product), x_shape = x.shape(),
                x_dtype = x.dtype()](BackwardContext& context) {
                 const Tensor grad_out = raw::AsMatrix(raw::Contiguous(context.TakeGradOutput()));
                 const Tensor grad_x = product.Backward(
                     context, 1, PassOf(grad_out), grad_out.size(0), grad_out.dtype(),
                     context.NeedsGrad(0), grad_out.device(), context.grad_output_column_sums());
                 if (grad_x.defined())
                   context.SetGrad(0, raw::To(raw::Reshape(grad_x, x_shape), x_dtype));
               });
    node.set_uses_column_sums(bias.defined() && bias.requires_grad());
  }
  return result;
}

Tensor GeluMlpOf(const Tensor& x, const Fp8Matrix* quantized, const Tensor& fc_weight,
                 const Tensor& fc_bias, const Tensor& proj_weight, const Tensor& proj_bias,
                 bool tanh_approximation, const State& fc_state, const State& proj_state) {
  if (x.rank() < 1) throw Error("Fp8GeluMlp: expected x [.., in], got a scalar");
  detail::CheckLinear("Fp8GeluMlp", x.size(-1), fc_weight, fc_bias);
  detail::CheckLinear("Fp8GeluMlp", fc_weight.size(0), proj_weight, proj_bias);
  const DataType dtype = ResultType("Fp8GeluMlp", x, fc_weight);
  const bool record = ShouldRecord({&x, &fc_weight, &fc_bias, &proj_weight, &proj_bias});
  const bool pre_needs_grad = ShouldRecord({&x, &fc_weight, &fc_bias});
  Fp8Product fc(fc_state, fc_weight, fc_bias, x.requires_grad());
  Fp8Product proj(proj_state, proj_weight, proj_bias, pre_needs_grad);
  const Fp8Matrix input = quantized != nullptr ? *quantized : Quantize(fc, x);
  const Tensor pre = fc.Forward(input, fc_weight, fc_bias, dtype);
  const Fp8Matrix hidden = proj.QuantizeInput(PassOfGelu(pre, tanh_approximation), pre.size(0));
  Tensor result = detail::InShapeOf(x, proj.Forward(hidden, proj_weight, proj_bias, dtype));
  if (record) {
    auto& node = Record(
        "Fp8GeluMlp", {&result}, {&x, &fc_weight, &fc_bias, &proj_weight, &proj_bias},
        [fc = std::move(fc), proj = std::move(proj), pre = SavedTensor(pre), tanh_approximation,
         x_shape = x.shape(), x_dtype = x.dtype(), pre_needs_grad](BackwardContext& context) {
          const Tensor grad_out = raw::AsMatrix(raw::Contiguous(context.TakeGradOutput()));
          const auto backward = [&](const Fp8Product& product, int index, const Fp8Pass& pass,
                                    bool needs_input, const Tensor& column_sums = {}) {
            return product.Backward(context, index, pass, grad_out.size(0), grad_out.dtype(),
                                    needs_input, grad_out.device(), column_sums);
          };
          const Tensor grad_hidden = backward(proj, 3, PassOf(grad_out), pre_needs_grad,
                                              context.grad_output_column_sums());
          if (!pre_needs_grad) return;
          const Fp8Pass pass = PassOfGeluBackward(grad_hidden, pre.Unpack(), tanh_approximation);
          const Tensor grad_x = backward(fc, 1, pass, context.NeedsGrad(0));
          if (grad_x.defined()) context.SetGrad(0, raw::To(raw::Reshape(grad_x, x_shape), x_dtype));
        });
    node.set_uses_column_sums(proj_bias.defined() && proj_bias.requires_grad());
  }
  return result;
}

}  // namespace

Tensor Fp8Linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const State& state) {
  return LinearOf(x, nullptr, weight, bias, state);
}

Tensor Fp8Linear(const Fp8Activation& x, const Tensor& weight, const Tensor& bias,
                 const State& state) {
  return LinearOf(x.handle, &x.matrix, weight, bias, state);
}

Tensor Fp8GeluMlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
                  const Tensor& proj_weight, const Tensor& proj_bias, bool tanh_approximation,
                  const State& fc, const State& proj) {
  return GeluMlpOf(x, nullptr, fc_weight, fc_bias, proj_weight, proj_bias, tanh_approximation, fc,
                   proj);
}

Tensor Fp8GeluMlp(const Fp8Activation& x, const Tensor& fc_weight, const Tensor& fc_bias,
                  const Tensor& proj_weight, const Tensor& proj_bias, bool tanh_approximation,
                  const State& fc, const State& proj) {
  return GeluMlpOf(x.handle, &x.matrix, fc_weight, fc_bias, proj_weight, proj_bias,
                   tanh_approximation, fc, proj);
}

}  // namespace infini_train
