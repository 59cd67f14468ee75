#include "kernels/gemm_problem.h"

#include <algorithm>
#include <array>
#include <utility>

#include "infini_train/ops/matmul_precision.h"

namespace infini_train::cuda {
namespace {

/// The most products that one call takes.
constexpr std::int64_t kMaxBatch = 65535;

/// The last two dims of a tensor, of `rows` rows, where one of their strides is 1.
std::optional<Matrix> Find(const Tensor& tensor, std::int64_t rows, std::int64_t batch_stride) {
  const std::int64_t columns = tensor.size(-1);
  const std::int64_t row_stride = tensor.strides()[tensor.rank() - 2];
  const std::int64_t column_stride = tensor.strides()[tensor.rank() - 1];
  const auto type = TypeOf(tensor.dtype());
  void* const data = tensor.raw_data();
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1))
    return Matrix{data, type, columns, rows, std::max(row_stride, columns), batch_stride, true};
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1))
    return Matrix{data, type, rows, columns, std::max(column_stride, rows), batch_stride, false};
  return std::nullopt;
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
  using Strides = std::array<std::int64_t, 3>;
  const int rank = out.rank();
  const auto strides_of = [&](int i) {
    return Strides{a.strides()[i], b.strides()[i], out.strides()[i]};
  };
  const Strides row = strides_of(rank - 2);
  std::int64_t m = out.size(-2);
  GemmProblem problem;
  problem.accumulate = accumulate;
  problem.compute = ComputeTypeFor(a.dtype());
  Strides batch = {};
  for (int i = rank - 3; i >= 0; --i) {
    const Strides step = strides_of(i);
    const std::int64_t extent = out.shape()[i], count = problem.batch;
    if (extent == 1) continue;
    if (count == 1 && step == Strides{m * row[0], 0, m * row[2]}) {
      m *= extent;  // Products with one b that follow each other are one product of more rows.
      continue;
    }
    if (count == 1) batch = step;
    if (step != Strides{count * batch[0], count * batch[1], count * batch[2]} && count > 1)
      return std::nullopt;
    problem.batch *= extent;
  }
  auto left = Find(a, m, batch[0]), right = Find(b, b.size(-2), batch[1]);
  const auto result = Find(out, m, batch[2]);
  if (out.numel() == 0 || a.size(-1) == 0 || problem.batch > kMaxBatch || !left || !right ||
      !result) {
    return std::nullopt;
  }
  if (result->transposed) {
    // Rows of out are columns of its transpose, b^T a^T.
    std::swap(left, right);
    left->transposed = !left->transposed;
    right->transposed = !right->transposed;
  }
  problem.first = *left;
  problem.second = *right;
  problem.out = *result;
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
