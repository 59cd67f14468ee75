#include <fmt/format.h>

#include "infini_train/autograd/fp8.h"
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

/// Checks x [.., n] against targets [..] and gives both as [N, n] and [N].
std::pair<Tensor, Tensor> AsRowsAndTargets(std::string_view name, const Tensor& x,
                                           const Tensor& targets) {
  detail::CheckFloating(name, x);
  detail::CheckIndex(name, targets);
  bool valid = x.rank() == targets.rank() + 1;
  for (int i = 0; valid && i < targets.rank(); ++i)
    valid = x.shape()[i] == targets.shape()[i];
  if (!valid) {
    throw Error(fmt::format("{}: expected rows [.., n] and targets [..], got {} and {}", name,
                            x.shape().ToString(), targets.shape().ToString()));
  }
  return {raw::Reshape(raw::Contiguous(x), {targets.numel(), x.size(-1)}),
          raw::Reshape(raw::Contiguous(targets), {targets.numel()})};
}

/// x * factor for a factor of one element; x itself may be written.
Tensor ScaleOwned(Tensor x, const Tensor& factor, bool may_write) {
  Tensor out = may_write ? x : Tensor::EmptyLike(x);
  Call<op::Mul>(out, x, raw::Expand(raw::To(raw::Reshape(factor, {}), x.dtype()), x.shape()));
  return out;
}

/// `fp8`: state of the head, where the gradients come from products in FP8; or null.
Tensor LossOfLinear(std::string_view name, const Tensor& hidden, const Tensor& weight,
                    const Tensor& targets, double scale, std::int64_t ignore_index,
                    Fp8LinearState* fp8) {
  auto [rows, classes] = AsRowsAndTargets(name, hidden, targets);
  if (weight.rank() != 2 || weight.size(1) != rows.size(1)) {
    throw Error(fmt::format("{}: expected weight [V, {}], got {}", name, rows.size(1),
                            weight.shape().ToString()));
  }
  const DataType dtype = detail::MatmulDataType(name, hidden, weight);
  if (fp8 != nullptr && dtype != DataType::kFloat32 && dtype != DataType::kBFloat16)
    infini_train::detail::ThrowUnsupportedDataType(name, dtype, "float32 or bfloat16");
  rows = raw::To(rows, dtype);
  const Tensor compute_weight = raw::Contiguous(detail::ProductParameter(weight, dtype));
  const bool record = ShouldRecord({&hidden, &weight});
  Tensor grad_rows;
  Tensor grad_weight;
  if (record && hidden.requires_grad()) grad_rows = Tensor::EmptyLike(rows);
  if (record && weight.requires_grad()) {
    grad_weight = Tensor::Empty(weight.shape(), detail::GemmResultType(dtype, weight.dtype()),
                                weight.device());
  }
  Tensor loss = Tensor::Empty({}, detail::StatDataType(rows), rows.device());
  if (record && fp8 != nullptr) {
    const Fp8Matrix codes = fp8->QuantizeTransposedWeight(weight);
    const Fp8Pass measure = [&rows = rows](Tensor& out, Tensor& transposed, Tensor& column_sums,
                                           Tensor& amax, const Tensor& scale, Fp8Format format) {
      Call<op::Fp8Quantize>(out, transposed, column_sums, amax, rows, scale, format);
    };
    Fp8ScaleUse use = fp8->UseInput(measure, record);
    Call<op::Fp8LinearCrossEntropy>(loss, grad_rows, grad_weight, use.amax, rows, compute_weight,
                                    classes, use.scale, codes.transposed, codes.scale, ignore_index,
                                    scale);
  } else {
    Call<op::LinearCrossEntropy>(loss, grad_rows, grad_weight, rows, compute_weight, classes,
                                 ignore_index, scale);
  }
  if (record) {
    Record(name, {&loss}, {&hidden, &weight},
           [grad_rows, grad_weight, shape = hidden.shape(), hidden_dtype = hidden.dtype(),
            weight_dtype = weight.dtype()](BackwardContext& context) mutable {
             const Tensor grad = context.TakeGradOutput();
             const auto take = [&](Tensor& kept) {
               const bool may_write = !context.retain_graph();
               if (context.GradOutputIsOne()) return may_write ? std::move(kept) : kept;
               return ScaleOwned(may_write ? std::move(kept) : kept, grad, may_write);
             };
             if (context.NeedsGrad(0)) {
               context.SetGrad(0, raw::To(raw::Reshape(take(grad_rows), shape), hidden_dtype));
             }
             if (context.NeedsGrad(1)) context.SetGrad(1, raw::To(take(grad_weight), weight_dtype));
           });
  }
  return loss;
}

}  // namespace

Tensor CrossEntropy(const Tensor& logits, const Tensor& targets, Reduction reduction,
                    std::int64_t ignore_index) {
  const auto [rows, classes] = AsRowsAndTargets("CrossEntropy", logits, targets);
  const DataType stat = detail::StatDataType(logits);
  Tensor losses = Tensor::Empty({rows.size(0)}, stat, rows.device());
  Tensor lse = Tensor::EmptyLike(losses);
  Call<op::CrossEntropy>(losses, lse, rows, classes, ignore_index);
  Tensor loss;
  Tensor inverse_count;
  switch (reduction) {
    case Reduction::kNone:
      loss = raw::Reshape(losses, targets.shape());
      break;
    case Reduction::kSum:
      loss = Tensor::Empty({1}, stat, rows.device());
      Call<op::Sum>(loss, losses, Dims{0});
      loss = raw::Reshape(loss, {});
      break;
    case Reduction::kMean:
      loss = Tensor::Empty({}, stat, rows.device());
      inverse_count = Tensor::Empty({}, stat, rows.device());
      Call<op::MeanOverTargets>(loss, inverse_count, losses, classes, ignore_index);
      break;
  }
  if (ShouldRecord({&logits})) {
    Record("CrossEntropy", {&loss}, {&logits},
           [rows = SavedTensor(rows), classes = SavedTensor(classes), lse = SavedTensor(lse),
            inverse_count = SavedTensor(inverse_count), shape = logits.shape(),
            ignore_index](BackwardContext& context) {
             const Tensor logits = rows.Unpack();
             Tensor grad = context.TakeGradOutput();
             if (const Tensor factor = inverse_count.Unpack(); factor.defined()) {
               Tensor scaled = Tensor::EmptyLike(grad);
               Call<op::Mul>(scaled, grad, factor);
               grad = scaled;
             }
             const Dims count = {logits.size(0)};
             const Tensor grad_losses =
                 grad.rank() == 0 ? raw::Expand(grad, count) : raw::Reshape(grad, count);
             Tensor grad_logits = Tensor::EmptyLike(logits);
             Call<op::CrossEntropyBackward>(grad_logits, grad_losses, logits, lse.Unpack(),
                                            classes.Unpack(), ignore_index);
             context.SetGrad(0, raw::Reshape(grad_logits, shape));
           });
  }
  return loss;
}

Tensor LinearCrossEntropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                          double scale, std::int64_t ignore_index) {
  return LossOfLinear("LinearCrossEntropy", hidden, weight, targets, scale, ignore_index, nullptr);
}

Tensor Fp8LinearCrossEntropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                             double scale, Fp8LinearState& state, std::int64_t ignore_index) {
  return LossOfLinear("Fp8LinearCrossEntropy", hidden, weight, targets, scale, ignore_index,
                      &state);
}

}  // namespace infini_train
