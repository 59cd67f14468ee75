#pragma once

// Stand-in for the vendor's header: what InfiniRT uses of it.

#define STANDIN(name) musa##name
#define STANDIN_NAMED_ERRORS 0
#define STANDIN_NAMED_ENUMERATORS 0
#define STANDIN_NAMED_FLAGS 0
#define STANDIN_HAS_ASYNC_MEMORY 0
#define STANDIN_HAS_POOLS 0
#define STANDIN_HAS_CUDA_EXTRAS 1
#define STANDIN_HAS_THREE_ARGUMENT_INSTANTIATE 1
#include "cuda_style/declarations.inc"
