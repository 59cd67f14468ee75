#pragma once

#include <infini/rt/types.h>

namespace infini::rt::runtime {

/// Launches a kernel that faults on an NVIDIA device.
void LaunchCudaFault(Stream stream);

}  // namespace infini::rt::runtime
