#pragma once

// Stand-in for the vendor's header: what InfiniRT uses of it.

#define STANDIN(name) mc##name
#define STANDIN_NAMED_ERRORS 5000
#define STANDIN_HAS_ASYNC_MEMORY 1
#define STANDIN_HAS_POOLS 1
#define STANDIN_HAS_CUDA_EXTRAS 0
#define STANDIN_HAS_THREE_ARGUMENT_INSTANTIATE 0
#include "cuda_style/declarations.inc"

struct mcDeviceProp_t {
  std::size_t totalGlobalMem;
  int warpSize;
};
enum mcDeviceAttribute_t { mcDeviceAttributeMultiProcessorCount = 16 };

STANDIN_API mcError_t mcInit(unsigned int flags);
STANDIN_API mcError_t mcGetDeviceProperties(mcDeviceProp_t* prop, int device);
STANDIN_API mcError_t mcDeviceGetAttribute(int* value, mcDeviceAttribute_t attribute, int device);
STANDIN_API mcError_t mcDeviceGetName(char* name, int length, int device);
