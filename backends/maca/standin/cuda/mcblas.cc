// mcBLAS by cuBLAS.
#include <cublas_v2.h>

#include <mcblas/mcblas.h>

namespace {

cublasHandle_t Native(mcblasHandle_t handle) {
  return reinterpret_cast<cublasHandle_t>(handle);
}

mcblasStatus_t Give(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return MCBLAS_STATUS_SUCCESS;
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return MCBLAS_STATUS_NOT_INITIALIZED;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return MCBLAS_STATUS_ALLOC_FAILED;
    case CUBLAS_STATUS_INVALID_VALUE:
      return MCBLAS_STATUS_INVALID_VALUE;
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return MCBLAS_STATUS_ARCH_MISMATCH;
    case CUBLAS_STATUS_MAPPING_ERROR:
      return MCBLAS_STATUS_MAPPING_ERROR;
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return MCBLAS_STATUS_EXECUTION_FAILED;
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return MCBLAS_STATUS_NOT_SUPPORTED;
    case CUBLAS_STATUS_LICENSE_ERROR:
      return MCBLAS_STATUS_LICENSE_ERROR;
    default:
      return MCBLAS_STATUS_INTERNAL_ERROR;
  }
}

/// Enumerators by name; false for a number that is none.
bool Take(mcblasOperation_t op, cublasOperation_t* native) {
  *native = op == MCBLAS_OP_T ? CUBLAS_OP_T : CUBLAS_OP_N;
  return op == MCBLAS_OP_T || op == MCBLAS_OP_N;
}

bool Take(macaDataType_t type, cudaDataType_t* native) {
  switch (type) {
    case MACA_R_16F:
      *native = CUDA_R_16F;
      return true;
    case MACA_R_16BF:
      *native = CUDA_R_16BF;
      return true;
    case MACA_R_32F:
      *native = CUDA_R_32F;
      return true;
    case MACA_R_64F:
      *native = CUDA_R_64F;
      return true;
    default:
      return false;
  }
}

bool Take(mcblasComputeType_t compute, cublasComputeType_t* native) {
  switch (compute) {
    case MCBLAS_COMPUTE_32F:
      *native = CUBLAS_COMPUTE_32F;
      return true;
    case MCBLAS_COMPUTE_32F_FAST_16F:
      *native = CUBLAS_COMPUTE_32F_FAST_16F;
      return true;
    case MCBLAS_COMPUTE_32F_FAST_16BF:
      *native = CUBLAS_COMPUTE_32F_FAST_16BF;
      return true;
    case MCBLAS_COMPUTE_32F_FAST_TF32:
      *native = CUBLAS_COMPUTE_32F_FAST_TF32;
      return true;
    case MCBLAS_COMPUTE_64F:
      *native = CUBLAS_COMPUTE_64F;
      return true;
    case MCBLAS_COMPUTE_32I:
      *native = CUBLAS_COMPUTE_32I;
      return true;
  }
  return false;
}

bool Take(mcblasGemmAlgo_t algo, cublasGemmAlgo_t* native) {
  *native = algo == MCBLAS_GEMM_DEFAULT ? CUBLAS_GEMM_DEFAULT : CUBLAS_GEMM_DEFAULT_TENSOR_OP;
  return algo == MCBLAS_GEMM_DEFAULT || algo == MCBLAS_GEMM_DEFAULT_TENSOR_OP;
}

}  // namespace

mcblasStatus_t mcblasCreate(mcblasHandle_t* handle) {
  int device = 0;
  if (mcGetDevice(&device) != mcSuccess) return MCBLAS_STATUS_NOT_INITIALIZED;
  const mcblasStatus_t status = Give(cublasCreate(reinterpret_cast<cublasHandle_t*>(handle)));
  return status == MCBLAS_STATUS_SUCCESS ? mcblasSetMathMode(*handle, MCBLAS_DEFAULT_MATH) : status;
}

mcblasStatus_t mcblasDestroy(mcblasHandle_t handle) {
  return Give(cublasDestroy(Native(handle)));
}

mcblasStatus_t mcblasSetStream(mcblasHandle_t handle, mcStream_t stream) {
  return Give(cublasSetStream(Native(handle), stream));
}

mcblasStatus_t mcblasGetVersion(mcblasHandle_t handle, int* version) {
  return Give(cublasGetVersion(Native(handle), version));
}

mcblasStatus_t mcblasSetMathMode(mcblasHandle_t handle, mcblasMath_t mode) {
  if (mode != MCBLAS_DEFAULT_MATH) return MCBLAS_STATUS_INVALID_VALUE;
  // cuBLAS would add parts of a long sum in the result's type.
  constexpr int kMode = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  return Give(cublasSetMathMode(Native(handle), static_cast<cublasMath_t>(kMode)));
}

mcblasStatus_t mcblasSetPointerMode(mcblasHandle_t handle, mcblasPointerMode_t mode) {
  if (mode != MCBLAS_POINTER_MODE_HOST && mode != MCBLAS_POINTER_MODE_DEVICE)
    return MCBLAS_STATUS_INVALID_VALUE;
  return Give(cublasSetPointerMode(Native(handle), mode == MCBLAS_POINTER_MODE_HOST
                                                       ? CUBLAS_POINTER_MODE_HOST
                                                       : CUBLAS_POINTER_MODE_DEVICE));
}

mcblasStatus_t mcblasGemmStridedBatchedEx(mcblasHandle_t handle, mcblasOperation_t op_a,
                                          mcblasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, macaDataType a_type,
                                          int lda, long long stride_a, const void* b,
                                          macaDataType b_type, int ldb, long long stride_b,
                                          const void* beta, void* c, macaDataType c_type, int ldc,
                                          long long stride_c, int batch,
                                          mcblasComputeType_t compute, mcblasGemmAlgo_t algo) {
  cublasOperation_t first, second;
  cudaDataType_t of_a, of_b, of_c;
  cublasComputeType_t of_sums;
  cublasGemmAlgo_t how;
  if (!Take(op_a, &first) || !Take(op_b, &second) || !Take(algo, &how))
    return MCBLAS_STATUS_INVALID_VALUE;
  if (!Take(a_type, &of_a) || !Take(b_type, &of_b) || !Take(c_type, &of_c) ||
      !Take(compute, &of_sums))
    return MCBLAS_STATUS_NOT_SUPPORTED;
  if (batch == 1) {
    return Give(cublasGemmEx(Native(handle), first, second, m, n, k, alpha, a, of_a, lda, b, of_b,
                             ldb, beta, c, of_c, ldc, of_sums, how));
  }
  return Give(cublasGemmStridedBatchedEx(Native(handle), first, second, m, n, k, alpha, a, of_a,
                                         lda, stride_a, b, of_b, ldb, stride_b, beta, c, of_c, ldc,
                                         stride_c, batch, of_sums, how));
}
