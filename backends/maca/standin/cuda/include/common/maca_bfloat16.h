#pragma once

#include <cuda_bf16.h>

typedef __nv_bfloat16 __maca_bfloat16;
typedef __nv_bfloat16 maca_bfloat16;
