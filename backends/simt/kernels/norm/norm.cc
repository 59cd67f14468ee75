#include "backends/simt/kernels/norm/row_statistics.h"

namespace infini_train::simt {
namespace {

/// LayerNorm where centered, else RMSNorm, which has neither mean nor bias. Where `sum` is not
/// null, it becomes x + residual, which is normalised.
template <typename Row, bool centered, typename T = typename Row::Element>
SIMT_KERNEL void NormForwardKernel(T* sum, T* out, ComputeType<T>* mean, ComputeType<T>* rstd,
                                   const T* x, const T* residual, NormParameter<T> weight,
                                   NormParameter<T> bias, ComputeType<T> eps, std::int64_t rows,
                                   std::int64_t hidden) {
  using Team = typename Row::Team;
  using C = ComputeType<T>;
  constexpr int N = Row::kWidth;
  for (std::int64_t row = Team::First(); row < rows; row += Team::Count()) {
    const std::int64_t first = row * hidden;
    const Row values = sum == nullptr ? Row(x + first, hidden)
                                      : Row(x + first, residual + first, sum + first, hidden);
    const NormStatistics<C> by = RowNormStatistics<centered>(values, hidden, eps);
    if (Team::Lane() == 0) {
      if constexpr (centered) Store(mean + row, by.mean);
      Store(rstd + row, by.rstd);
    }
    values.ForEach([&](std::int64_t i, const C(&numbers)[N]) {
      C w[N], b[N], results[N];
      weight.template Read<N>(i, w);
      if constexpr (centered) bias.template Read<N>(i, b);
      SIMT_UNROLL
      for (int k = 0; k < N; ++k) {
        if constexpr (centered) {
          results[k] = (numbers[k] - by.mean) * by.rstd * w[k] + b[k];
        } else {
          results[k] = numbers[k] * by.rstd * w[k];
        }
      }
      Packed<T, N>::Narrow(results).Store(out + first + i);
    });
  }
}

/// `sum` and `residual` are both given or both undefined.
template <bool centered>
void NormForward(const char* op, const Context& context, const Tensor& sum, Tensor& out,
                 Tensor* mean, Tensor& rstd, const Tensor& x, const Tensor& residual,
                 const Tensor& weight, const Tensor& bias, double eps) {
  if (x.numel() == 0) return;
  const std::int64_t hidden = x.size(-1);
  const std::int64_t rows = x.numel() / hidden;
  DispatchFloating(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    DispatchNormRows<T>(hidden, {&sum, &out, &x, &residual, &weight, &bias},
                        [&]<typename Row>(TypeTag<Row>, int lanes) {
                          constexpr bool kGroups = std::is_same_v<typename Row::Team, GroupTeam>;
                          Launch(context, kGroups ? GroupRows(rows) : Rows(rows, lanes),
                                 &NormForwardKernel<Row, centered>, DataOf<T>(sum), out.data<T>(),
                                 centered ? mean->data<C>() : nullptr, rstd.data<C>(), x.data<T>(),
                                 DataOf<T>(residual), NormParameter<T>::Of(weight, 1),
                                 NormParameter<T>::Of(bias, 0), static_cast<C>(eps), rows, hidden);
                        });
  });
}

void LayerNorm(const Context& context, Tensor& out, Tensor& mean, Tensor& rstd, const Tensor& x,
               const Tensor& weight, const Tensor& bias, double eps) {
  NormForward<true>("LayerNorm", context, {}, out, &mean, rstd, x, {}, weight, bias, eps);
}

void AddLayerNorm(const Context& context, Tensor& sum, Tensor& out, Tensor& mean, Tensor& rstd,
                  const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                  double eps) {
  NormForward<true>("AddLayerNorm", context, sum, out, &mean, rstd, x, residual, weight, bias, eps);
}

void RmsNorm(const Context& context, Tensor& out, Tensor& rstd, const Tensor& x,
             const Tensor& weight, double eps) {
  NormForward<false>("RmsNorm", context, {}, out, nullptr, rstd, x, {}, weight, {}, eps);
}

void AddRmsNorm(const Context& context, Tensor& sum, Tensor& out, Tensor& rstd, const Tensor& x,
                const Tensor& residual, const Tensor& weight, double eps) {
  NormForward<false>("AddRmsNorm", context, sum, out, nullptr, rstd, x, residual, weight, {}, eps);
}

}  // namespace

SIMT_REGISTER_KERNEL(LayerNorm, &LayerNorm);
SIMT_REGISTER_KERNEL(RmsNorm, &RmsNorm);
SIMT_REGISTER_KERNEL(AddLayerNorm, &AddLayerNorm);
SIMT_REGISTER_KERNEL(AddRmsNorm, &AddRmsNorm);

}  // namespace infini_train::simt
