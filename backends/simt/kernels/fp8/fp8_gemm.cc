#include "backends/simt/kernels/fp8/fp8_gemm.h"

#include <cstdint>

#include "backends/simt/kernels/gemm/gemm.h"
#include "infini_train/ops/fp8.h"

namespace infini_train::simt {
namespace {

template <typename F, int kWidth>
SIMT_KERNEL void DequantizeKernel(BFloat16* out, const std::uint8_t* codes, const float* scale,
                                  std::int64_t n) {
  const float inverse = Load(scale);
  for (std::int64_t i = GlobalThreadIndex() * kWidth; i < n; i += GlobalThreadCount() * kWidth) {
    const auto piece = Load<kWidth>(codes + i);
    Vec<BFloat16, kWidth> numbers;
    SIMT_UNROLL
    for (int x = 0; x < kWidth; ++x) {
      F code;
      code.bits = piece[x];
      numbers[x] = FromCompute<BFloat16>(ToCompute(code) * inverse);
    }
    Store(out + i, numbers);
  }
}

/// The numbers of codes, which bfloat16 holds exactly.
Tensor Dequantize(const Context& context, const Tensor& codes, Fp8Format format,
                  const Tensor& scale) {
  Tensor numbers = Tensor::Empty(codes.shape(), DataType::kBFloat16, context.device);
  const std::uint8_t* from = codes.data<std::uint8_t>();
  BFloat16* to = numbers.data<BFloat16>();
  const std::int64_t n = codes.numel();
  DispatchFp8(format, [&](auto tag) {
    using F = typename decltype(tag)::type;
    DispatchWidth<8, 1>(VectorWidth(from, n), [&](auto width) {
      constexpr int kWidth = width;
      Launch(context, Linear(n, kWidth), &DequantizeKernel<F, kWidth>, to, from,
             scale.data<float>(), n);
    });
  });
  return numbers;
}

}  // namespace

void PortableFp8Gemm(const Context& context, Tensor& out, const Tensor& a, Fp8Format a_format,
                     const Tensor& a_scale, const Tensor& b, Fp8Format b_format,
                     const Tensor& b_scale, const Tensor& bias, bool accumulate) {
  const Tensor left = Dequantize(context, a, a_format, a_scale);
  const Tensor right = Dequantize(context, b, b_format, b_scale);
  const std::int64_t depth = right.size(1);
  PortableGemm(context, out, left, right.AsStrided({depth, right.size(0)}, {1, depth}, 0), bias,
               accumulate);
}

}  // namespace infini_train::simt
