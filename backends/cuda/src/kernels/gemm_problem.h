#pragma once

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "infini_train/core/tensor.h"

namespace infini_train::cuda {

/// A matrix as cuBLASLt stores it: columns that are `leading` elements apart. `transposed`: a
/// product takes it the other way round.
struct Matrix {
  void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, leading = 0, batch_stride = 0;
  bool transposed = false;
};

/// out = first second, `batch` times, and what is done behind it.
struct GemmProblem {
  Matrix first, second, out;
  std::int64_t batch = 1;
  /// Whether the former out is added.
  bool accumulate = false;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  /// For epilogues with a vector, which is read (BIAS) or written (BGRADA, BGRADB).
  void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
  /// For epilogues with a second matrix of out's type and layout (GELU_AUX, DGELU).
  void* auxiliary = nullptr;
  /// For 8-bit operands: factors in device memory, and whether sums may be kept in fewer bits
  /// between additions to float32.
  const float* first_scale = nullptr;
  const float* second_scale = nullptr;
  bool fast_accumulation = false;

  /// Everything but the addresses, of which only the alignment counts.
  using Key = std::array<std::int64_t, 28>;
  Key MakeKey() const;

  /// Floating-point operations.
  double Flops() const {
    const std::int64_t depth = first.transposed ? first.rows : first.columns;
    return 2.0 * static_cast<double>(out.rows) * static_cast<double>(out.columns) *
           static_cast<double>(depth) * static_cast<double>(batch);
  }
};

struct GemmKeyHash {
  std::size_t operator()(const GemmProblem::Key& key) const noexcept;
};

/// The largest power of two, up to 256, that divides an address.
std::uint32_t AlignmentOf(const void* data);

/// What epilogues ask of the address of a vector or second matrix.
inline constexpr std::uint32_t kEpilogueAlignment = 16;

cudaDataType_t TypeOf(DataType dtype);

/// The op Gemm without a bias, under the policy for float32 operands (ops/matmul_precision.h); none
/// where cuBLASLt does not take the layouts. For a row-major out it is the transposed product,
/// out^T = b^T a^T: `first` is b then.
std::optional<GemmProblem> DescribeGemm(const Tensor& out, const Tensor& a, const Tensor& b,
                                        bool accumulate);

/// Whether rows of the tensor are columns of `problem.out`.
bool IsTransposed(const GemmProblem& problem);

/// Puts `bias`, of one element for each column of a row-major out, behind the product. False where
/// cuBLASLt does not take it.
bool AddBias(GemmProblem& problem, const Tensor& bias, const Tensor& out);

}  // namespace infini_train::cuda
