#include "kernels/gemm_problem.h"

#include <algorithm>

#include "backends/simt/kernels/gemm/gemm_layout.h"
#include "infini_train/ops/matmul_precision.h"

namespace infini_train::cuda {
namespace {

Matrix ToMatrix(const simt::GemmMatrix& matrix) {
  return {matrix.data,    TypeOf(matrix.dtype), matrix.rows,      matrix.columns,
          matrix.leading, matrix.batch_stride,  matrix.transposed};
}

cublasComputeType_t ComputeTypeFor(DataType dtype) {
  if (dtype == DataType::kFloat64) return CUBLAS_COMPUTE_64F;
  if (dtype != DataType::kFloat32) return CUBLAS_COMPUTE_32F;
  switch (GetMatmulPrecision()) {
    case MatmulPrecision::kTf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case MatmulPrecision::kBFloat16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    default:
      return CUBLAS_COMPUTE_32F;
  }
}

}  // namespace

GemmProblem::Key GemmProblem::MakeKey() const {
  Key key = {batch,
             accumulate,
             compute,
             epilogue,
             bias_type,
             AlignmentOf(bias),
             AlignmentOf(auxiliary),
             first_scale != nullptr,
             second_scale != nullptr,
             fast_accumulation};
  auto* part = &key[10];
  for (const Matrix* matrix : {&first, &second, &out}) {
    for (const std::int64_t value :
         {static_cast<std::int64_t>(matrix->type), matrix->rows, matrix->columns, matrix->leading,
          matrix->batch_stride, std::int64_t{AlignmentOf(matrix->data)} * 2 + matrix->transposed})
      *part++ = value;
  }
  return key;
}

std::size_t GemmKeyHash::operator()(const GemmProblem::Key& key) const noexcept {
  std::uint64_t hash = 0;
  for (const std::int64_t value : key) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return static_cast<std::size_t>(hash);
}

std::uint32_t AlignmentOf(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  constexpr std::uintptr_t kMost = 256;
  return static_cast<std::uint32_t>(address == 0 ? kMost : std::min(address & -address, kMost));
}

cudaDataType_t TypeOf(DataType dtype) {
  if (dtype == DataType::kFloat64) return CUDA_R_64F;
  if (dtype == DataType::kFloat16) return CUDA_R_16F;
  return dtype == DataType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

std::optional<GemmProblem> DescribeGemm(const Tensor& out, const Tensor& a, const Tensor& b,
                                        bool accumulate) {
  const std::optional<simt::GemmLayout> layout = simt::DescribeGemmLayout(out, a, b);
  if (!layout) return std::nullopt;
  GemmProblem problem;
  problem.first = ToMatrix(layout->first);
  problem.second = ToMatrix(layout->second);
  problem.out = ToMatrix(layout->out);
  problem.batch = layout->batch;
  problem.accumulate = accumulate;
  problem.compute = ComputeTypeFor(a.dtype());
  return problem;
}

bool IsTransposed(const GemmProblem& problem) {
  return problem.out.transposed;
}

bool AddBias(GemmProblem& problem, const Tensor& bias, const Tensor& out) {
  // Kernels for rows that no vector fits round a half type before they add the bias.
  const auto size = static_cast<std::int64_t>(SizeOf(out.dtype()));
  bool aligned = true;
  for (const auto* matrix : {&problem.first, &problem.second, &problem.out})
    aligned = aligned && matrix->leading * size % kEpilogueAlignment == 0;
  if (!IsTransposed(problem) || !aligned || bias.strides()[0] != 1 || bias.dtype() != out.dtype() ||
      AlignmentOf(bias.raw_data()) < kEpilogueAlignment) {
    return false;
  }
  problem.epilogue = CUBLASLT_EPILOGUE_BIAS;
  problem.bias = bias.raw_data();
  problem.bias_type = TypeOf(bias.dtype());
  return true;
}

}  // namespace infini_train::cuda
