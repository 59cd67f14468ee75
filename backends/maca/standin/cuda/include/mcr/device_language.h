#pragma once

// MACA's device language in CUDA: nvcc knows the words. Warps have 32 lanes here, and warp
// functions masks of 32 bits.

#include "mcr/host_api.h"

#ifdef __MACA__
#include <cuda_runtime.h>
#ifdef __CUDA_ARCH__
#define __MACA_ARCH__ 1000
#endif
#endif
