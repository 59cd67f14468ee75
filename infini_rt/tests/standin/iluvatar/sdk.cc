#include <cuda_runtime.h>

#include "cuda_style/definitions.inc"
