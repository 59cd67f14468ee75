#include <musa_runtime.h>

#include "cuda_style/definitions.inc"
