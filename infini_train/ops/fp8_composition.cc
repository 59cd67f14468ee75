#include "infini_train/ops/fp8_composition.h"

#include <algorithm>
#include <cmath>

#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fp8.h"

namespace infini_train {
namespace {

// Rows of logits held at once, and logits.
constexpr std::int64_t kMaxRowsPerChunk = 1024;
constexpr std::int64_t kLogitsPerChunk = 14 * 1024 * 1024;

Tensor Filled(const Dims& shape, Scalar value, DataType dtype, Device device) {
  Tensor tensor = Tensor::Empty(shape, dtype, device);
  Call<op::Fill>(tensor, value);
  return tensor;
}

Tensor Rows(const Tensor& x, std::int64_t begin, std::int64_t count) {
  Dims shape = x.shape();
  shape[0] = count;
  return x.AsStrided(shape, x.strides(), x.offset() + begin * x.strides()[0]);
}

/// One number as `count` of them.
Tensor Repeated(const Tensor& number, std::int64_t count) {
  return number.AsStrided({count}, {0}, number.offset());
}

/// A chunk of rows, with zeros in place of those whose target is ignored.
Tensor MaskedRows(const Tensor& rows, const Tensor& targets, std::int64_t ignore_index) {
  const Tensor ignored_target = Filled({1}, ignore_index, targets.dtype(), rows.device());
  Tensor ignored = Tensor::Empty(targets.shape(), DataType::kBool, rows.device());
  Call<op::Eq>(ignored, targets, Repeated(ignored_target, targets.numel()));
  Tensor masked = Tensor::EmptyLike(rows);
  Call<op::MaskedFill>(masked, rows, ignored.AsStrided(rows.shape(), {1, 0}, 0), 0.0);
  return masked;
}

}  // namespace

Tensor MakeFp8Scale(float scale, Device device) {
  Tensor pair = Filled({2}, 1 / scale, DataType::kFloat32, device);
  Tensor second = pair.AsStrided({1}, {1}, pair.offset() + 1);
  Call<op::Fill>(second, scale);
  return pair;
}

void ComposeFp8QuantizeNorm(Tensor& out, Tensor& transposed, Tensor& amax, Tensor& sum,
                            Tensor& mean, Tensor& rstd, const Tensor& x, const Tensor& residual,
                            const Tensor& weight, const Tensor& bias, const Tensor& scale,
                            Fp8Format format, double eps) {
  Tensor normalized = Tensor::EmptyLike(x);
  if (mean.defined() && residual.defined()) {
    Call<op::AddLayerNorm>(sum, normalized, mean, rstd, x, residual, weight, bias, eps);
  } else if (mean.defined()) {
    Call<op::LayerNorm>(normalized, mean, rstd, x, weight, bias, eps);
  } else if (residual.defined()) {
    Call<op::AddRmsNorm>(sum, normalized, rstd, x, residual, weight, eps);
  } else {
    Call<op::RmsNorm>(normalized, rstd, x, weight, eps);
  }
  Tensor no_sums;
  Call<op::Fp8Quantize>(out, transposed, no_sums, amax, normalized, scale, format);
}

void ComposeFp8LinearCrossEntropy(Tensor& loss, Tensor& grad_hidden, Tensor& grad_weight,
                                  Tensor& amax, const Tensor& hidden, const Tensor& weight,
                                  const Tensor& targets, const Tensor& hidden_scale,
                                  const Tensor& weight_codes, const Tensor& weight_scale,
                                  std::int64_t ignore_index, double scale) {
  const Device device = hidden.device();
  const std::int64_t count = hidden.size(0), vocab_size = weight.size(0), width = hidden.size(1);
  const std::int64_t step = std::clamp<std::int64_t>(
      kLogitsPerChunk / std::max<std::int64_t>(vocab_size, 1), 1, kMaxRowsPerChunk);
  const Tensor losses = Tensor::Empty({count}, DataType::kFloat32, device);
  const Tensor grad_loss = Filled({1}, scale, DataType::kFloat32, device);
  const Tensor grad_scale = MakeFp8Scale(ScaleOfBound(Fp8Format::kE5M2, std::abs(scale)), device);
  // Sums over several chunks are rounded once, at the end.
  const bool is_wide =
      !grad_weight.defined() || count <= step || grad_weight.dtype() == DataType::kFloat32;
  Tensor weight_sums =
      is_wide ? grad_weight : Tensor::Empty(weight.shape(), DataType::kFloat32, device);
  if (weight_sums.defined() && count == 0) Call<op::Fill>(weight_sums, 0.0);
  Tensor none;
  for (std::int64_t begin = 0; begin < count; begin += step) {
    const std::int64_t rows = std::min(step, count - begin);
    const Tensor hidden_rows = Rows(hidden, begin, rows), target_rows = Rows(targets, begin, rows);
    Tensor logits = Tensor::Empty({rows, vocab_size}, hidden.dtype(), device);
    Tensor losses_of_rows = Rows(losses, begin, rows);
    Tensor lse = Tensor::EmptyLike(losses_of_rows);
    Call<op::Gemm>(logits, hidden_rows,
                   weight.AsStrided({width, vocab_size}, {1, width}, weight.offset()), Tensor(),
                   false);
    Call<op::CrossEntropy>(losses_of_rows, lse, logits, target_rows, ignore_index);
    if (!grad_hidden.defined() && !grad_weight.defined()) continue;
    Call<op::CrossEntropyBackward>(logits, Repeated(grad_loss, rows), logits, lse, target_rows,
                                   ignore_index);
    Tensor codes, transposed;
    if (grad_hidden.defined()) codes = Tensor::Empty(logits.shape(), DataType::kUInt8, device);
    if (grad_weight.defined())
      transposed = Tensor::Empty({vocab_size, rows}, DataType::kUInt8, device);
    Call<op::Fp8Quantize>(codes, transposed, none, none, logits, grad_scale, Fp8Format::kE5M2);
    if (grad_hidden.defined()) {
      Tensor grad_rows = Rows(grad_hidden, begin, rows);
      Call<op::Fp8Gemm>(grad_rows, codes, Fp8Format::kE5M2, grad_scale, weight_codes,
                        Fp8Format::kE4M3, weight_scale, Tensor(), false);
    }
    if (grad_weight.defined()) {
      Tensor hidden_codes = Tensor::Empty({width, rows}, DataType::kUInt8, device);
      Call<op::Fp8Quantize>(none, hidden_codes, none, amax,
                            MaskedRows(hidden_rows, target_rows, ignore_index), hidden_scale,
                            Fp8Format::kE4M3);
      Call<op::Fp8Gemm>(weight_sums, transposed, Fp8Format::kE5M2, grad_scale, hidden_codes,
                        Fp8Format::kE4M3, hidden_scale, Tensor(), begin > 0);
    }
  }
  if (!is_wide) Call<op::Copy>(grad_weight, weight_sums);
  Tensor total = loss.AsStrided({1}, {1}, loss.offset());
  Call<op::Sum>(total, losses, Dims{0});
  Call<op::MulScalar>(total, total, scale);
}

}  // namespace infini_train
