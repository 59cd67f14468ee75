// FP8 products by cuBLASLt, on chips that have them.
#include "backends/simt/kernels/fp8/fp8_gemm.h"

#include <cstdint>
#include <optional>

#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/kernel_library.h"
#include "kernels/cublaslt.h"
#include "kernels/gemm_problem.h"

namespace infini_train::simt {
namespace {

using cuda::GemmProblem;

/// What cuBLASLt asks of extents and addresses of 8-bit operands.
constexpr std::int64_t kAlignment = 16;

cudaDataType_t TypeOf(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

/// A row-major operand: a column-major matrix whose columns run along the depth.
cuda::Matrix Operand(const Tensor& codes, Fp8Format format, bool transposed) {
  return {codes.raw_data(), TypeOf(format), codes.size(1), codes.size(0), codes.size(1), 0,
          transposed};
}

/// The product as cuBLASLt takes it, out^T = b a^T with the depth along the columns of both; none
/// where it does not.
std::optional<GemmProblem> Describe(Tensor& out, const Tensor& a, Fp8Format a_format,
                                    const Tensor& a_scale, const Tensor& b, Fp8Format b_format,
                                    const Tensor& b_scale, const Tensor& bias, bool accumulate) {
  const auto is_aligned = [](const Tensor& tensor) {
    return cuda::AlignmentOf(tensor.raw_data()) >= kAlignment;
  };
  const std::int64_t rows = out.size(0), columns = out.size(1), depth = a.size(1);
  // The library rounds to a half type between the bias and the former out.
  const bool rounds_twice = accumulate && bias.defined() && SizeOf(out.dtype()) == 2;
  if (depth == 0 || depth % kAlignment != 0 || columns % kAlignment != 0 || rounds_twice ||
      !is_aligned(a) || !is_aligned(b) || !is_aligned(out) || !is_aligned(a_scale) ||
      !is_aligned(b_scale)) {
    return std::nullopt;
  }
  GemmProblem problem;
  problem.first = Operand(b, b_format, true);
  problem.second = Operand(a, a_format, false);
  problem.out = {out.raw_data(), cuda::TypeOf(out.dtype()), columns, rows, columns, 0, true};
  problem.accumulate = accumulate;
  // Factors that give back the numbers: the inverses.
  problem.first_scale = b_scale.data<float>();
  problem.second_scale = a_scale.data<float>();
  // Forwards. Gradients need the sums' full width.
  problem.fast_accumulation = a_format == Fp8Format::kE4M3 && b_format == Fp8Format::kE4M3;
  if (bias.defined()) {
    if (!is_aligned(bias)) return std::nullopt;
    problem.epilogue = CUBLASLT_EPILOGUE_BIAS;
    problem.bias = bias.raw_data();
    problem.bias_type = CUDA_R_16BF;
  }
  return problem;
}

void Fp8Gemm(const Context& context, Tensor& out, const Tensor& a, Fp8Format a_format,
             const Tensor& a_scale, const Tensor& b, Fp8Format b_format, const Tensor& b_scale,
             const Tensor& bias, bool accumulate) {
  if (out.numel() == 0) return;
  const detail::LaunchDevice device(context);
  const auto problem = Describe(out, a, a_format, a_scale, b, b_format, b_scale, bias, accumulate);
  if (!problem || !cuda::Multiply(context.device, context.stream, *problem)) {
    PortableFp8Gemm(context, out, a, a_format, a_scale, b, b_format, b_scale, bias, accumulate);
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(Fp8Gemm, &Fp8Gemm);

REGISTER_KERNEL_LIBRARY(kCUDA, Fp8Gemm, &cuda::CublasLtVersion);

}  // namespace infini_train::simt
