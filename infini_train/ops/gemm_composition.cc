#include "infini_train/ops/gemm_composition.h"

#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/matmul_precision.h"

namespace infini_train {
namespace {

/// A row-major float64 copy. Dimensions of stride 0 stay so: a shared operand is converted once.
Tensor ToFloat64(const Tensor& x) {
  if (!x.defined()) return x;
  Dims shape = x.shape();
  for (int d = 0; d < shape.size(); ++d) {
    if (x.strides()[d] == 0 && shape[d] > 1) shape[d] = 1;
  }
  Tensor wide = Tensor::Empty(shape, DataType::kFloat64, x.device());
  Call<op::Copy>(wide, x.AsStrided(shape, x.strides(), x.offset()));
  Dims strides = wide.strides();
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] != x.shape()[d]) strides[d] = 0;
  }
  return wide.AsStrided(x.shape(), strides, wide.offset());
}

/// What a product is summed in, before it is converted to out.
Tensor WideResult(const Tensor& out, bool accumulate) {
  return accumulate ? ToFloat64(out) : Tensor::Empty(out.shape(), DataType::kFloat64, out.device());
}

}  // namespace

void ComposeGemmGelu(Tensor& out, Tensor& pre, const Tensor& a, const Tensor& b,
                     const Tensor& bias) {
  Call<op::Gemm>(pre, a, b, bias, false);
  Call<op::Gelu>(out, pre, true);
}

void ComposeGemmGeluBackward(Tensor& out, Tensor& column_sums, const Tensor& a, const Tensor& b,
                             const Tensor& pre) {
  Call<op::Gemm>(out, a, b, Tensor(), false);
  Call<op::GeluBackward>(out, out, pre, true);
  ColumnSums(column_sums, out);
}

void ComposeGemmRowSums(Tensor& out, Tensor& row_sums, const Tensor& a, const Tensor& b,
                        bool accumulate) {
  Call<op::Gemm>(out, a, b, Tensor(), accumulate);
  RowSums(row_sums, a);
}

void ComposeNormGemv(Tensor& out, const Tensor& x, const Tensor& norm_weight, const Tensor& weight,
                     const Tensor& bias, const Tensor& residual, double eps, bool gated) {
  Tensor rows = x;
  if (norm_weight.defined()) {
    rows = Tensor::EmptyLike(x);
    Tensor rstd =
        Tensor::Empty({x.size(0)}, PromoteTypes(x.dtype(), DataType::kFloat32), x.device());
    Call<op::RmsNorm>(rows, rstd, x, norm_weight, eps);
  }
  Tensor product = gated || residual.defined()
                       ? Tensor::Empty({x.size(0), weight.size(0)}, x.dtype(), x.device())
                       : out;
  const Tensor transposed =
      weight.AsStrided({weight.size(1), weight.size(0)}, {1, weight.size(1)}, weight.offset());
  Call<op::Gemm>(product, rows, transposed, bias, false);
  if (gated) {
    Tensor activated = residual.defined() ? Tensor::EmptyLike(out) : out;
    Call<op::SwiGlu>(activated, product);
    product = activated;
  }
  if (residual.defined()) Call<op::Add>(out, product, residual);
}

void RowSums(Tensor& row_sums, const Tensor& a) {
  Tensor column =
      row_sums.AsStrided({row_sums.numel(), 1}, {row_sums.strides()[0], 1}, row_sums.offset());
  Call<op::Sum>(column, a, Dims{1});
}

void ColumnSums(Tensor& column_sums, const Tensor& a) {
  if (!column_sums.defined()) return;
  Tensor row = column_sums.AsStrided({1, column_sums.numel()}, {1, column_sums.strides()[0]},
                                     column_sums.offset());
  Call<op::Sum>(row, a, Dims{0});
}

bool MultipliesInFloat64(DataType dtype) noexcept {
  return dtype != DataType::kFloat64 && GetMatmulPrecision() == MatmulPrecision::kFloat64;
}

void GemmInFloat64(Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
                   bool accumulate) {
  Tensor wide = WideResult(out, accumulate);
  Call<op::Gemm>(wide, ToFloat64(a), ToFloat64(b), ToFloat64(bias), accumulate);
  Call<op::Copy>(out, wide);
}

void GroupedGemmInFloat64(Tensor& out, const Tensor& a, const Tensor& b, const Tensor& counts,
                          bool accumulate) {
  Tensor wide = WideResult(out, accumulate);
  Call<op::GroupedGemm>(wide, ToFloat64(a), ToFloat64(b), counts, accumulate);
  Call<op::Copy>(out, wide);
}

void KGroupedGemmInFloat64(Tensor& out, const Tensor& a, const Tensor& b, const Tensor& counts,
                           bool accumulate) {
  Tensor wide = WideResult(out, accumulate);
  Call<op::KGroupedGemm>(wide, ToFloat64(a), ToFloat64(b), counts, accumulate);
  Call<op::Copy>(out, wide);
}

}  // namespace infini_train
