// What only the driver can do. Programs do not link it: they also start where there is none.
#include <cuda.h>

#include <vector>

#include <infini/rt/nvidia/runtime.h>

namespace infini::rt::runtime {
namespace {

using Nvidia = Runtime<Device::Type::kNvidia>;

// Memory is made and returned in these pieces. Smaller ones are more calls; of a piece that two
// blocks share nothing is returned.
constexpr std::size_t kPiece = std::size_t{4} << 20;

// Null where the driver lacks the function.
template <typename Function>
Function Find(const char* name) noexcept {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result);
#else
  cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result);
#endif
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) {
    return reinterpret_cast<Function>(function);
  }
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

#define INFINI_RT_DRIVER_FUNCTION(name) \
  const decltype(&::name) name = Find<decltype(&::name)>(#name)
struct Driver {
  INFINI_RT_DRIVER_FUNCTION(cuDeviceGetAttribute);
  INFINI_RT_DRIVER_FUNCTION(cuDevicePrimaryCtxGetState);
  INFINI_RT_DRIVER_FUNCTION(cuMemAddressFree);
  INFINI_RT_DRIVER_FUNCTION(cuMemAddressReserve);
  INFINI_RT_DRIVER_FUNCTION(cuMemCreate);
  INFINI_RT_DRIVER_FUNCTION(cuMemGetAllocationGranularity);
  INFINI_RT_DRIVER_FUNCTION(cuMemMap);
  INFINI_RT_DRIVER_FUNCTION(cuMemRelease);
  INFINI_RT_DRIVER_FUNCTION(cuMemSetAccess);
  INFINI_RT_DRIVER_FUNCTION(cuMemUnmap);
};
#undef INFINI_RT_DRIVER_FUNCTION

const Driver& GetDriver() {
  static const Driver driver;
  return driver;
}

// The current device, whose context becomes the calling thread's.
int UseCurrentDevice() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaSetDevice(device) != cudaSuccess)
    static_cast<void>(cudaGetLastError());  // The driver's call will fail and say why.
  return device;
}

CUmemAllocationProp PropertiesOf(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

// The device and those that can read its memory.
std::vector<CUmemAccessDesc> AccessTo(int device) {
  std::vector<CUmemAccessDesc> access;
  int count = 0;
  static_cast<void>(cudaGetDeviceCount(&count));
  for (int other = 0; other < count; ++other) {
    int reaches = 1;
    if (other != device) static_cast<void>(cudaDeviceCanAccessPeer(&reaches, other, device));
    if (reaches != 0)
      access.push_back({PropertiesOf(other).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return access;
}

CUdeviceptr AddressOf(void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

// The numbers of the driver's errors are the runtime's.
Error ErrorOf(CUresult result) {
  return static_cast<Error>(result);
}

CUresult MapPiece(CUdeviceptr address, const CUmemAllocationProp& properties) {
  const Driver& driver = GetDriver();
  CUmemGenericAllocationHandle memory = 0;
  CUresult result = driver.cuMemCreate(&memory, kPiece, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuMemMap(address, kPiece, 0, memory, 0);
  driver.cuMemRelease(memory);  // What is mapped stays until it is unmapped.
  return result;
}

}  // namespace

bool Nvidia::IsInUse(int device) {
  auto get_state = GetDriver().cuDevicePrimaryCtxGetState;
  unsigned int flags = 0;
  int active = 1;
  if (get_state == nullptr || get_state(device, &flags, &active) != CUDA_SUCCESS) return true;
  return active != 0;
}

Error Nvidia::MemGetAllocationGranularity(std::size_t* granularity) {
  if (granularity == nullptr) return kErrorInvalidValue;
  *granularity = 0;
  const Driver& driver = GetDriver();
  if (driver.cuMemMap == nullptr) return ErrorOf(CUDA_ERROR_NOT_SUPPORTED);
  const int device = UseCurrentDevice();
  const CUmemAllocationProp properties = PropertiesOf(device);
  int supported = 0;
  std::size_t least = 0;
  CUresult result = driver.cuDeviceGetAttribute(
      &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  if (result == CUDA_SUCCESS && supported != 0) {
    result =
        driver.cuMemGetAllocationGranularity(&least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  }
  if (result != CUDA_SUCCESS || least == 0 || kPiece % least != 0) return ErrorOf(result);
  // A trial says more than attributes: virtual devices and peers have rules of their own.
  void* trial = nullptr;
  Error error = MemAddressReserve(&trial, kPiece);
  if (error != kSuccess) return error;
  error = MemMap(trial, kPiece);
  if (error == kSuccess) error = MemUnmap(trial, kPiece);
  static_cast<void>(MemAddressFree(trial, kPiece));
  if (error == kErrorMemoryAllocation) error = kSuccess;  // It may have some later.
  if (error == kSuccess) *granularity = kPiece;
  return error;
}

Error Nvidia::MemAddressReserve(void** pointer, std::size_t bytes) {
  UseCurrentDevice();
  CUdeviceptr address = 0;
  const CUresult result = GetDriver().cuMemAddressReserve(&address, bytes, kPiece, 0, 0);
  *pointer = reinterpret_cast<void*>(address);
  return ErrorOf(result);
}

Error Nvidia::MemAddressFree(void* pointer, std::size_t bytes) {
  return ErrorOf(GetDriver().cuMemAddressFree(AddressOf(pointer), bytes));
}

Error Nvidia::MemMap(void* pointer, std::size_t bytes) {
  const int device = UseCurrentDevice();
  const CUmemAllocationProp properties = PropertiesOf(device);
  CUresult result = CUDA_SUCCESS;
  std::size_t mapped = 0;
  for (; mapped < bytes; mapped += kPiece) {
    result = MapPiece(AddressOf(pointer) + mapped, properties);
    if (result != CUDA_SUCCESS) break;
  }
  if (result == CUDA_SUCCESS) {
    const std::vector<CUmemAccessDesc> access = AccessTo(device);
    result = GetDriver().cuMemSetAccess(AddressOf(pointer), bytes, access.data(), access.size());
  }
  if (result != CUDA_SUCCESS) static_cast<void>(MemUnmap(pointer, mapped));
  return ErrorOf(result);
}

Error Nvidia::MemUnmap(void* pointer, std::size_t bytes) {
  CUresult result = CUDA_SUCCESS;
  for (std::size_t offset = 0; offset < bytes && result == CUDA_SUCCESS; offset += kPiece)
    result = GetDriver().cuMemUnmap(AddressOf(pointer) + offset, kPiece);
  return ErrorOf(result);
}

}  // namespace infini::rt::runtime
