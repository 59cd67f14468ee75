// Matrix products by cuBLASLt, with its epilogues. What the library does not take is composed from
// other ops, or left to the portable kernel.
#include "backends/simt/kernels/gemm/gemm.h"

#include <functional>
#include <optional>

#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/gemm_composition.h"
#include "infini_train/ops/kernel_library.h"
#include "kernels/cublaslt.h"
#include "kernels/gemm_problem.h"

namespace infini_train::simt {
namespace {

using cuda::AlignmentOf;
using cuda::GemmProblem;

bool Multiply(const Context& context, const GemmProblem& problem,
              const std::function<void()>& alternative = {}) {
  const detail::LaunchDevice device(context);
  return cuda::Multiply(context.device, context.stream, problem, alternative);
}

void Gemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
          bool accumulate) {
  if (out.numel() == 0) return;
  if (MultipliesInFloat64(a.dtype())) {
    GemmInFloat64(out, a, b, bias, accumulate);
    return;
  }
  std::optional<GemmProblem> problem = cuda::DescribeGemm(out, a, b, accumulate);
  // cuBLASLt rounds to a half type between the bias and the former out.
  const bool rounds_twice = accumulate && bias.defined() && SizeOf(out.dtype()) == 2;
  if (!problem || rounds_twice || (bias.defined() && !cuda::AddBias(*problem, bias, out)) ||
      !Multiply(context, *problem)) {
    PortableGemm(context, out, a, b, bias, accumulate);
  }
}

/// A product with an epilogue that reads or writes `auxiliary`, of out's shape and dtype; none
/// where cuBLASLt has no such epilogue. Its functions are exact enough for the half types alone,
/// and the columns of `auxiliary` are multiples of 8.
std::optional<GemmProblem> WithAuxiliary(const Tensor& out, const Tensor& a, const Tensor& b,
                                         const Tensor& auxiliary, cublasLtEpilogue_t epilogue) {
  if (SizeOf(out.dtype()) != 2 || MultipliesInFloat64(a.dtype()) || out.size(1) % 8 != 0 ||
      AlignmentOf(auxiliary.raw_data()) < cuda::kEpilogueAlignment) {
    return std::nullopt;
  }
  std::optional<GemmProblem> problem = cuda::DescribeGemm(out, a, b, false);
  if (!problem || !cuda::IsTransposed(*problem)) return std::nullopt;
  problem->auxiliary = auxiliary.raw_data();
  problem->epilogue = epilogue;
  return problem;
}

void GemmGelu(const Context& context, Tensor& out, Tensor& pre, const Tensor& a, const Tensor& b,
              const Tensor& bias) {
  auto problem = WithAuxiliary(out, a, b, pre, CUBLASLT_EPILOGUE_GELU_AUX);
  if (problem && bias.defined()) {
    if (cuda::AddBias(*problem, bias, out)) {
      problem->epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    } else {
      problem.reset();
    }
  }
  const auto compose = [&] { ComposeGemmGelu(out, pre, a, b, bias); };
  if (!problem || !Multiply(context, *problem, std::ref(compose))) compose();
}

void GemmGeluBackward(const Context& context, Tensor& out, Tensor& column_sums, const Tensor& a,
                      const Tensor& b, const Tensor& pre) {
  auto problem = WithAuxiliary(out, a, b, pre, CUBLASLT_EPILOGUE_DGELU);
  Tensor none;
  if (!column_sums.defined()) {
    const auto compose = [&] { ComposeGemmGeluBackward(out, none, a, b, pre); };
    if (!problem || !Multiply(context, *problem, std::cref(compose))) compose();
    return;
  }
  const auto compose = [&] {
    GemmGeluBackward(context, out, none, a, b, pre);
    ColumnSums(column_sums, out);
  };
  const bool fits = column_sums.dtype() == out.dtype() && column_sums.strides()[0] == 1 &&
                    AlignmentOf(column_sums.raw_data()) >= cuda::kEpilogueAlignment;
  if (problem && fits) {
    problem->epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
    problem->bias = column_sums.raw_data();
    problem->bias_type = cuda::TypeOf(column_sums.dtype());
    if (Multiply(context, *problem, std::cref(compose))) return;
  }
  compose();
}

/// Sums of a's rows are sums over the depth of the product, which cuBLASLt writes beside it in
/// out's type.
std::optional<GemmProblem> WithRowSums(const Tensor& out, const Tensor& row_sums, const Tensor& a,
                                       const Tensor& b, bool accumulate) {
  if (out.dtype() == DataType::kFloat64 || MultipliesInFloat64(a.dtype()) ||
      row_sums.dtype() != out.dtype() || row_sums.strides()[0] != 1 ||
      AlignmentOf(row_sums.raw_data()) < cuda::kEpilogueAlignment) {
    return std::nullopt;
  }
  std::optional<GemmProblem> problem = cuda::DescribeGemm(out, a, b, accumulate);
  if (!problem) return std::nullopt;
  const bool a_is_second = cuda::IsTransposed(*problem);
  problem->epilogue = a_is_second ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
  problem->bias = row_sums.raw_data();
  problem->bias_type = cuda::TypeOf(row_sums.dtype());
  return problem;
}

void GemmRowSums(const Context& context, Tensor& out, Tensor& row_sums, const Tensor& a,
                 const Tensor& b, bool accumulate) {
  const auto problem = WithRowSums(out, row_sums, a, b, accumulate);
  const auto try_composed = [&] {
    Tensor result = accumulate ? Tensor::EmptyLike(out) : out;
    ComposeGemmRowSums(result, row_sums, a, b, accumulate);
  };
  if (!problem || !Multiply(context, *problem, std::ref(try_composed)))
    ComposeGemmRowSums(out, row_sums, a, b, accumulate);
}

}  // namespace

SIMT_REGISTER_KERNEL(Gemm, &Gemm);
SIMT_REGISTER_KERNEL(GemmGelu, &GemmGelu);
SIMT_REGISTER_KERNEL(GemmGeluBackward, &GemmGeluBackward);
SIMT_REGISTER_KERNEL(GemmRowSums, &GemmRowSums);

REGISTER_KERNEL_LIBRARY(kCUDA, Gemm, &cuda::CublasLtVersion);
REGISTER_KERNEL_LIBRARY(kCUDA, GemmGelu, &cuda::CublasLtVersion);
REGISTER_KERNEL_LIBRARY(kCUDA, GemmGeluBackward, &cuda::CublasLtVersion);
REGISTER_KERNEL_LIBRARY(kCUDA, GemmRowSums, &cuda::CublasLtVersion);

}  // namespace infini_train::simt
