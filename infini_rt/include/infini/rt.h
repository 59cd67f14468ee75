#pragma once

/// InfiniRT: a portable device runtime with the names, parameters and semantics of the CUDA Runtime
/// API. No vendor header is included from here.

#include <infini/rt/data_type.h>
#include <infini/rt/device.h>
#include <infini/rt/generated.h>
#include <infini/rt/runtime.h>
#include <infini/rt/tensor_view.h>
#include <infini/rt/types.h>
