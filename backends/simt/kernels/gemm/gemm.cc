#include "backends/simt/kernels/gemm/gemm.h"

#include <cstdint>
#include <type_traits>

#include "backends/simt/kernels/gemm/gemm_tiles.h"
#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
void PortableGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                  const Tensor& bias, bool accumulate) {
  DispatchFloating("Gemm", a.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (out.dtype() == a.dtype()) {
      gemm::Run<S, S>(context, out, a, b, bias, accumulate, gemm::NoEpilogue<S>());
      return;
    }
    if constexpr (std::is_same_v<ComputeType<S>, float> && !std::is_same_v<S, float>) {
      if (out.dtype() == DataType::kFloat32) {
        gemm::Run<S, float>(context, out, a, b, bias, accumulate, gemm::NoEpilogue<float>());
        return;
      }
    }
    ::infini_train::detail::ThrowUnsupportedDataType("Gemm", out.dtype(),
                                                     "its inputs' type or float32 as out");
  });
}

}  // namespace infini_train::simt
