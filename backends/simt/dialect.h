#pragma once

/// The language of the shared kernels: the one header that a kernel includes.
///
/// A kernel is a function `SIMT_KERNEL void Name(...)` that every lane of a grid of one-dimensional
/// blocks runs. What the words mean on a device is in the provider's `simt_platform.h`, which the
/// provider's build puts on the include path; what can be said in these words is written once, in
/// the headers below.

#include "simt_platform.h"

#include "backends/simt/codes.h"
#include "backends/simt/geometry.h"
#include "backends/simt/group.h"
#include "backends/simt/math.h"
#include "backends/simt/vector.h"
