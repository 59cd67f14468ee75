#include "common/primary_context.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace infini_train::cuda {
namespace {

using GetState = CUresult (*)(CUdevice device, unsigned int* flags, int* active);

/// A function of the driver, which programs do not link: they also start where there is none.
GetState FindGetState() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuDevicePrimaryCtxGetState", &function, 7000, cudaEnableDefault, &result);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &function, cudaEnableDefault, &result);
#endif
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
    return reinterpret_cast<GetState>(function);
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

}  // namespace

bool HasPrimaryContext(int device) noexcept {
  static const GetState get_state = FindGetState();
  unsigned int flags = 0;
  int active = 1;
  if (get_state == nullptr || get_state(device, &flags, &active) != CUDA_SUCCESS) return true;
  return active != 0;
}

}  // namespace infini_train::cuda
