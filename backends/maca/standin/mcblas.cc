// What mcBLAS is in both bodies.
#include <mcblas/mcblas.h>

const char* mcblasGetStatusString(mcblasStatus_t status) {
  switch (status) {
    case MCBLAS_STATUS_SUCCESS:
      return "success";
    case MCBLAS_STATUS_NOT_INITIALIZED:
      return "not initialized";
    case MCBLAS_STATUS_INVALID_VALUE:
      return "invalid value";
    case MCBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    default:
      return "failure";
  }
}

mcblasStatus_t mcblasGemmEx(mcblasHandle_t handle, mcblasOperation_t op_a, mcblasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            macaDataType a_type, int lda, const void* b, macaDataType b_type,
                            int ldb, const void* beta, void* c, macaDataType c_type, int ldc,
                            mcblasComputeType_t compute, mcblasGemmAlgo_t algo) {
  return mcblasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0, b,
                                    b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, compute, algo);
}
