// Products with something behind them. Apart from Gemm: a provider with a library for products
// leaves this file out.
#include <cstdint>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/gemm/gemm_tiles.h"
#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::simt {
namespace {

/// Writes the GELU of the result, as stored, to `matrix`.
template <typename T>
struct GeluEpilogue {
  T* matrix;

  template <int kN, typename C>
  SIMT_DEVICE void Apply(C* values, std::int64_t at) const {
    Vec<T, kN> activated;
    SIMT_UNROLL
    for (int x = 0; x < kN; ++x)
      activated[x] = FromCompute<T>(GeluTanh<T>(ToCompute(FromCompute<T>(values[x]))));
    Store(matrix + at, activated);
  }
};

/// Multiplies by the slope of GELU at `matrix`.
template <typename T>
struct GeluSlopeEpilogue {
  const T* matrix;

  template <int kN, typename C>
  SIMT_DEVICE void Apply(C* values, std::int64_t at) const {
    const Vec<T, kN> pre = Load<kN>(matrix + at);
    SIMT_UNROLL
    for (int x = 0; x < kN; ++x)
      values[x] *= GeluTanhSlope<T>(ToCompute(pre[x]));
  }
};

void GemmGelu(const Context& context, Tensor& out, Tensor& pre, const Tensor& a, const Tensor& b,
              const Tensor& bias) {
  if (MultipliesInFloat64(a.dtype())) {
    ComposeGemmGelu(out, pre, a, b, bias);
    return;
  }
  DispatchFloating("GemmGelu", a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    gemm::Run<T, T>(context, pre, a, b, bias, false, GeluEpilogue<T>{out.data<T>()});
  });
}

void GemmGeluBackward(const Context& context, Tensor& out, Tensor& column_sums, const Tensor& a,
                      const Tensor& b, const Tensor& pre) {
  if (MultipliesInFloat64(a.dtype())) {
    ComposeGemmGeluBackward(out, column_sums, a, b, pre);
    return;
  }
  DispatchFloating("GemmGeluBackward", a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    gemm::Run<T, T>(context, out, a, b, Tensor(), false, GeluSlopeEpilogue<T>{pre.data<T>()});
  });
  ColumnSums(column_sums, out);
}

void GemmRowSums(const Context&, Tensor& out, Tensor& row_sums, const Tensor& a, const Tensor& b,
                 bool accumulate) {
  ComposeGemmRowSums(out, row_sums, a, b, accumulate);
}

}  // namespace

SIMT_REGISTER_KERNEL(GemmGelu, &GemmGelu);
SIMT_REGISTER_KERNEL(GemmGeluBackward, &GemmGeluBackward);
SIMT_REGISTER_KERNEL(GemmRowSums, &GemmRowSums);

}  // namespace infini_train::simt
