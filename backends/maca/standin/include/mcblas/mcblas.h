#pragma once

// mcBLAS: what is known of it. Numbers are unlike cuBLAS's, which the real ones need not be.

#include "mcr/mc_runtime_api.h"

typedef struct mcblasContext* mcblasHandle_t;

enum mcblasStatus_t {
  MCBLAS_STATUS_SUCCESS = 0,
  MCBLAS_STATUS_NOT_INITIALIZED = 9001,
  MCBLAS_STATUS_ALLOC_FAILED = 9003,
  MCBLAS_STATUS_INVALID_VALUE = 9007,
  MCBLAS_STATUS_ARCH_MISMATCH = 9008,
  MCBLAS_STATUS_MAPPING_ERROR = 9011,
  MCBLAS_STATUS_EXECUTION_FAILED = 9013,
  MCBLAS_STATUS_INTERNAL_ERROR = 9014,
  MCBLAS_STATUS_NOT_SUPPORTED = 9015,
  MCBLAS_STATUS_LICENSE_ERROR = 9016,
};

enum mcblasOperation_t { MCBLAS_OP_N = 111, MCBLAS_OP_T = 112 };
enum mcblasPointerMode_t { MCBLAS_POINTER_MODE_HOST = 120, MCBLAS_POINTER_MODE_DEVICE = 121 };
enum mcblasMath_t { MCBLAS_DEFAULT_MATH = 130 };

enum macaDataType_t {
  MACA_R_32F = 300,
  MACA_R_64F = 301,
  MACA_R_16F = 302,
  MACA_R_8I = 303,
  MACA_R_8U = 308,
  MACA_R_32I = 310,
  MACA_R_32U = 312,
  MACA_R_16BF = 314,
  MACA_R_8F_E4M3 = 328,
};
typedef macaDataType_t macaDataType;

enum mcblasComputeType_t {
  MCBLAS_COMPUTE_32F = 468,
  MCBLAS_COMPUTE_32F_FAST_16F = 474,
  MCBLAS_COMPUTE_32F_FAST_16BF = 475,
  MCBLAS_COMPUTE_32F_FAST_TF32 = 477,
  MCBLAS_COMPUTE_64F = 470,
  MCBLAS_COMPUTE_32I = 472,
};
enum mcblasGemmAlgo_t { MCBLAS_GEMM_DEFAULT = 500, MCBLAS_GEMM_DEFAULT_TENSOR_OP = 599 };

STANDIN_API mcblasStatus_t mcblasCreate(mcblasHandle_t* handle);
STANDIN_API mcblasStatus_t mcblasDestroy(mcblasHandle_t handle);
STANDIN_API mcblasStatus_t mcblasSetStream(mcblasHandle_t handle, mcStream_t stream);
STANDIN_API mcblasStatus_t mcblasGetVersion(mcblasHandle_t handle, int* version);
STANDIN_API mcblasStatus_t mcblasSetMathMode(mcblasHandle_t handle, mcblasMath_t mode);
STANDIN_API mcblasStatus_t mcblasSetPointerMode(mcblasHandle_t handle, mcblasPointerMode_t mode);
STANDIN_API const char* mcblasGetStatusString(mcblasStatus_t status);

// Column-major.
STANDIN_API mcblasStatus_t mcblasGemmEx(mcblasHandle_t handle, mcblasOperation_t op_a,
                                        mcblasOperation_t op_b, int m, int n, int k,
                                        const void* alpha, const void* a, macaDataType a_type,
                                        int lda, const void* b, macaDataType b_type, int ldb,
                                        const void* beta, void* c, macaDataType c_type, int ldc,
                                        mcblasComputeType_t compute, mcblasGemmAlgo_t algo);
STANDIN_API mcblasStatus_t mcblasGemmStridedBatchedEx(
    mcblasHandle_t handle, mcblasOperation_t op_a, mcblasOperation_t op_b, int m, int n, int k,
    const void* alpha, const void* a, macaDataType a_type, int lda, long long stride_a,
    const void* b, macaDataType b_type, int ldb, long long stride_b, const void* beta, void* c,
    macaDataType c_type, int ldc, long long stride_c, int batch, mcblasComputeType_t compute,
    mcblasGemmAlgo_t algo);
