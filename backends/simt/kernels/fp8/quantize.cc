#include "backends/simt/kernels/fp8/quantize.h"

#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

struct First {
  template <typename C>
  SIMT_DEVICE C operator()(C first, C) const {
    return first;
  }
};

void Fp8Quantize(const Context& context, Tensor& out, Tensor& transposed, Tensor& column_sums,
                 Tensor& amax, const Tensor& x, const Tensor& scale, Fp8Format format) {
  DispatchFloating("Fp8Quantize", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LaunchQuantize<1, true, T>(context, out, transposed, column_sums, amax, x, Tensor(), scale,
                               format, First());
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(Fp8Quantize, &Fp8Quantize);

}  // namespace infini_train::simt
