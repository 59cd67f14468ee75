#pragma once

// Stand-in for the vendor's header: what is known of MACA's runtime on the host. Numbers that are
// not known are not CUDA's, so that code which takes them for CUDA's shows.

#define STANDIN(name) mc##name
#define STANDIN_NAMED_ERRORS 5000
#define STANDIN_NAMED_ENUMERATORS 40
#define STANDIN_NAMED_FLAGS 8
#define STANDIN_STREAM CUstream_st  // under this name nvcc takes a stream for its own
#define STANDIN_HAS_ASYNC_MEMORY 1
#define STANDIN_HAS_POOLS 1
#define STANDIN_HAS_CUDA_EXTRAS 0
#define STANDIN_HAS_THREE_ARGUMENT_INSTANTIATE 0
#include "cuda_style/declarations.inc"

struct mcDeviceProp_t {
  std::size_t totalGlobalMem;
  int warpSize;
  int maxThreadsPerBlock;
};
enum mcDeviceAttribute_t {
  mcDeviceAttributeMultiProcessorCount = 216,
  mcDeviceAttributeWarpSize = 210,
  mcDeviceAttributeMaxThreadsPerBlock = 201,
  mcDeviceAttributeMaxSharedMemoryPerBlock = 208,
};

// Any other call comes after this one.
STANDIN_API mcError_t mcInit(unsigned int flags);
STANDIN_API mcError_t mcGetDeviceProperties(mcDeviceProp_t* prop, int device);
STANDIN_API mcError_t mcDeviceGetAttribute(int* value, mcDeviceAttribute_t attribute, int device);
STANDIN_API mcError_t mcDeviceGetName(char* name, int length, int device);
STANDIN_API const char* mcGetErrorString(mcError_t error);
