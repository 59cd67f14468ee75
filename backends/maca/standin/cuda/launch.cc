// Launches of kernels. nvcc turns `<<<>>>` into calls of the CUDA runtime; programs find these
// first.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstddef>

#include "mcr/host_api.h"
#include "metax/sdk.h"

namespace {

/// Dynamic shared memory that fits beside a kernel's static one in the 48 KiB that CUDA gives
/// unasked; MACA's kernels have 64 KiB of both.
constexpr std::size_t kLittleSharedBytes = std::size_t{16} << 10;

/// Waits for the stream, unless a graph captures it.
cudaError_t Await(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error != cudaSuccess || status != cudaStreamCaptureStatusNone) return error;
  return cudaStreamSynchronize(stream);
}

using Launch = cudaError_t (*)(const void* function, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared, cudaStream_t stream);

/// What MACA does beside a launch, which `name` of the CUDA runtime makes.
template <typename Name>
cudaError_t LaunchBy(Name, const void* function, dim3 grid, dim3 block, void** arguments,
                     std::size_t shared, cudaStream_t stream) {
  static const auto launch = reinterpret_cast<Launch>(dlsym(RTLD_NEXT, Name::kText));
  if (!maca_standin::IsInitialized()) return cudaErrorNotReady;
  if (shared > kLittleSharedBytes) {
    cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(shared));
    if (error == cudaSuccess) {
      error = cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared);
    }
    if (error != cudaSuccess) return error;
  }
  const cudaError_t error = launch(function, grid, block, arguments, shared, stream);
  return error == cudaSuccess && maca_standin::IsLaunchBlocking() ? Await(stream) : error;
}

struct ByFunction {
  static constexpr const char* kText = "cudaLaunchKernel";
};
struct ByKernel {
  static constexpr const char* kText = "__cudaLaunchKernel";
};

}  // namespace

#define MACA_API extern "C" __attribute__((visibility("default")))

MACA_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                      std::size_t shared, cudaStream_t stream) {
  return LaunchBy(ByFunction(), function, grid, block, arguments, shared, stream);
}

// The toolkit's newer versions look a kernel up once and launch that.
MACA_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                        void** arguments, std::size_t shared, cudaStream_t stream) {
  return LaunchBy(ByKernel(), kernel, grid, block, arguments, shared, stream);
}

const char* mcGetErrorString(mcError_t error) {
  switch (error) {
    case mcErrorInvalidValue:
      return "invalid argument";
    case mcErrorDeinitialized:
      return "the runtime is not initialized: mcInit comes first";
    case mcErrorMemoryAllocation:
      return "out of memory";
    default:
      return cudaGetErrorString(static_cast<cudaError_t>(error));
  }
}
