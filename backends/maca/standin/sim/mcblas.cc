// mcBLAS on the CPU: float32 sums by oneDNN, float64 sums by loops.
#include <mcblas/mcblas.h>

#include <oneapi/dnnl/dnnl.h>

#include <cstdint>
#include <vector>

#include "infini_train/core/half.h"
#include "launch.h"

struct mcblasContext {
  mcStream_t stream = nullptr;
};

namespace {

using infini_train::BFloat16;
using infini_train::Float16;
namespace rt = infini::rt::runtime;

/// A product of column-major matrices, `batch` times.
struct Product {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  double alpha, beta;
  const void* a;
  const void* b;
  void* c;
  macaDataType_t ab_type, c_type;
  std::int64_t lda, ldb, ldc;
  std::int64_t stride_a, stride_b, stride_c;
  std::int64_t batch;
};

std::int64_t SizeOf(macaDataType_t type) {
  switch (type) {
    case MACA_R_64F:
      return 8;
    case MACA_R_32F:
      return 4;
    case MACA_R_16F:
    case MACA_R_16BF:
      return 2;
    default:
      return 0;
  }
}

const std::byte* At(const void* base, macaDataType_t type, std::int64_t element) {
  return static_cast<const std::byte*>(base) + element * SizeOf(type);
}

double Read(const void* base, macaDataType_t type, std::int64_t i) {
  switch (type) {
    case MACA_R_64F:
      return static_cast<const double*>(base)[i];
    case MACA_R_16F:
      return static_cast<float>(static_cast<const Float16*>(base)[i]);
    case MACA_R_16BF:
      return static_cast<float>(static_cast<const BFloat16*>(base)[i]);
    default:
      return static_cast<const float*>(base)[i];
  }
}

void Write(void* base, macaDataType_t type, std::int64_t i, double value) {
  switch (type) {
    case MACA_R_64F:
      static_cast<double*>(base)[i] = value;
      break;
    case MACA_R_16F:
      static_cast<Float16*>(base)[i] = Float16(static_cast<float>(value));
      break;
    case MACA_R_16BF:
      static_cast<BFloat16*>(base)[i] = BFloat16(static_cast<float>(value));
      break;
    default:
      static_cast<float*>(base)[i] = static_cast<float>(value);
  }
}

/// op(matrix), of `rows` rows, row by row.
template <typename T>
std::vector<T> Gather(const void* matrix, macaDataType_t type, bool transpose, std::int64_t rows,
                      std::int64_t columns, std::int64_t leading) {
  std::vector<T> result(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at = transpose ? j + i * leading : i + j * leading;
      result[static_cast<std::size_t>(i * columns + j)] = static_cast<T>(Read(matrix, type, at));
    }
  }
  return result;
}

void Multiply(std::int64_t m, std::int64_t n, std::int64_t k, const std::vector<float>& a,
              const std::vector<float>& b, std::vector<float>& sums) {
  dnnl_sgemm('N', 'N', m, n, k, 1.0f, a.data(), k, b.data(), n, 0.0f, sums.data(), n);
}

void Multiply(std::int64_t m, std::int64_t n, std::int64_t k, const std::vector<double>& a,
              const std::vector<double>& b, std::vector<double>& sums) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      const double factor = a[static_cast<std::size_t>(i * k + p)];
      const double* row = b.data() + p * n;
      double* out = sums.data() + i * n;
      for (std::int64_t j = 0; j < n; ++j)
        out[j] += factor * row[j];
    }
  }
}

/// Whether all rows are vectors of 16 bytes.
bool AreVectors(const Product& p) {
  const auto fits = [](const void* data, macaDataType_t type, std::int64_t leading,
                       std::int64_t stride) {
    return (reinterpret_cast<std::uintptr_t>(data) |
            static_cast<std::uintptr_t>((leading | stride) * SizeOf(type))) %
               16 ==
           0;
  };
  return fits(p.a, p.ab_type, p.lda, p.stride_a) && fits(p.b, p.ab_type, p.ldb, p.stride_b) &&
         fits(p.c, p.c_type, p.ldc, p.stride_c);
}

template <typename T>
rt::Error Run(const void* arguments) {
  const auto& p = *static_cast<const Product*>(arguments);
  // Libraries have kernels that round a product before they add what was there.
  const bool rounds_twice = SizeOf(p.c_type) == 2 && !AreVectors(p);
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    const void* a_matrix = At(p.a, p.ab_type, batch * p.stride_a);
    const void* b_matrix = At(p.b, p.ab_type, batch * p.stride_b);
    const auto a = Gather<T>(a_matrix, p.ab_type, p.transpose_a, p.m, p.k, p.lda);
    const auto b = Gather<T>(b_matrix, p.ab_type, p.transpose_b, p.k, p.n, p.ldb);
    std::vector<T> sums(static_cast<std::size_t>(p.m * p.n));
    Multiply(p.m, p.n, p.k, a, b, sums);
    auto* c = const_cast<std::byte*>(At(p.c, p.c_type, batch * p.stride_c));
    for (std::int64_t j = 0; j < p.n; ++j) {
      for (std::int64_t i = 0; i < p.m; ++i) {
        const std::int64_t at = i + j * p.ldc;
        double value = p.alpha * static_cast<double>(sums[static_cast<std::size_t>(i * p.n + j)]);
        if (p.beta != 0) {
          const double former = p.beta * Read(c, p.c_type, at);
          if (rounds_twice) {
            Write(c, p.c_type, at, value);
            value = Read(c, p.c_type, at);
          }
          value += former;
        }
        Write(c, p.c_type, at, value);
      }
    }
  }
  return rt::kSuccess;
}

bool IsOperation(mcblasOperation_t op) {
  return op == MCBLAS_OP_N || op == MCBLAS_OP_T;
}

/// Types of operands, result and sums that go together: those of cuBLAS that training uses.
bool GoTogether(macaDataType_t a, macaDataType_t b, macaDataType_t c, mcblasComputeType_t compute) {
  if (a != b) return false;
  if (compute == MCBLAS_COMPUTE_64F) return a == MACA_R_64F && c == MACA_R_64F;
  switch (compute) {
    case MCBLAS_COMPUTE_32F:
      return (a == MACA_R_32F || a == MACA_R_16F || a == MACA_R_16BF) &&
             (c == a || c == MACA_R_32F);
    case MCBLAS_COMPUTE_32F_FAST_TF32:
    case MCBLAS_COMPUTE_32F_FAST_16F:
    case MCBLAS_COMPUTE_32F_FAST_16BF:
      return a == MACA_R_32F && c == a;
    default:
      return false;
  }
}

}  // namespace

mcblasStatus_t mcblasCreate(mcblasHandle_t* handle) {
  int device = 0;
  if (handle == nullptr) return MCBLAS_STATUS_INVALID_VALUE;
  if (mcGetDevice(&device) != mcSuccess) return MCBLAS_STATUS_NOT_INITIALIZED;
  *handle = new mcblasContext;
  return MCBLAS_STATUS_SUCCESS;
}

mcblasStatus_t mcblasDestroy(mcblasHandle_t handle) {
  delete handle;
  return MCBLAS_STATUS_SUCCESS;
}

mcblasStatus_t mcblasSetStream(mcblasHandle_t handle, mcStream_t stream) {
  if (handle == nullptr) return MCBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return MCBLAS_STATUS_SUCCESS;
}

mcblasStatus_t mcblasGetVersion(mcblasHandle_t handle, int* version) {
  if (handle == nullptr) return MCBLAS_STATUS_NOT_INITIALIZED;
  *version = 0;
  return MCBLAS_STATUS_SUCCESS;
}

mcblasStatus_t mcblasSetMathMode(mcblasHandle_t handle, mcblasMath_t mode) {
  if (handle == nullptr) return MCBLAS_STATUS_NOT_INITIALIZED;
  return mode == MCBLAS_DEFAULT_MATH ? MCBLAS_STATUS_SUCCESS : MCBLAS_STATUS_INVALID_VALUE;
}

mcblasStatus_t mcblasSetPointerMode(mcblasHandle_t handle, mcblasPointerMode_t mode) {
  if (handle == nullptr) return MCBLAS_STATUS_NOT_INITIALIZED;
  return mode == MCBLAS_POINTER_MODE_HOST ? MCBLAS_STATUS_SUCCESS : MCBLAS_STATUS_NOT_SUPPORTED;
}

mcblasStatus_t mcblasGemmStridedBatchedEx(mcblasHandle_t handle, mcblasOperation_t op_a,
                                          mcblasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, macaDataType a_type,
                                          int lda, long long stride_a, const void* b,
                                          macaDataType b_type, int ldb, long long stride_b,
                                          const void* beta, void* c, macaDataType c_type, int ldc,
                                          long long stride_c, int batch,
                                          mcblasComputeType_t compute, mcblasGemmAlgo_t algo) {
  if (handle == nullptr) return MCBLAS_STATUS_NOT_INITIALIZED;
  const bool transpose_a = op_a == MCBLAS_OP_T, transpose_b = op_b == MCBLAS_OP_T;
  if (!IsOperation(op_a) || !IsOperation(op_b) || m < 0 || n < 0 || k < 0 || batch < 0 ||
      alpha == nullptr || beta == nullptr || lda < (transpose_a ? k : m) ||
      ldb < (transpose_b ? n : k) || ldc < m || (batch > 1 && stride_c == 0) ||
      (algo != MCBLAS_GEMM_DEFAULT && algo != MCBLAS_GEMM_DEFAULT_TENSOR_OP)) {
    return MCBLAS_STATUS_INVALID_VALUE;
  }
  if (!GoTogether(a_type, b_type, c_type, compute)) return MCBLAS_STATUS_NOT_SUPPORTED;
  if (m == 0 || n == 0 || batch == 0) return MCBLAS_STATUS_SUCCESS;
  // Factors are of the type of the sums.
  const bool in_double = compute == MCBLAS_COMPUTE_64F;
  const macaDataType_t factors = in_double ? MACA_R_64F : MACA_R_32F;
  const Product product{transpose_a,
                        transpose_b,
                        m,
                        n,
                        k,
                        Read(alpha, factors, 0),
                        Read(beta, factors, 0),
                        a,
                        b,
                        c,
                        a_type,
                        c_type,
                        lda,
                        ldb,
                        ldc,
                        stride_a,
                        stride_b,
                        stride_c,
                        batch};
  const mcError_t error = __mcEnqueue(in_double ? &Run<double> : &Run<float>, &product,
                                      sizeof(product), handle->stream);
  return error == mcSuccess ? MCBLAS_STATUS_SUCCESS : MCBLAS_STATUS_EXECUTION_FAILED;
}
