#pragma once

/// The dialect on the host: kernels are ordinary functions that the emulator calls once per lane.
///
/// Blocks run on a pool of threads. The lanes of a block run on one thread, one after another,
/// until one has to wait for others; only then does the block go on upon another fiber. Faults of a
/// kernel (a barrier that not all lanes reach, shared memory out of bounds, ...) throw out of the
/// lane and end the launch as a device fault (fault.h).

#include "backends/simt/emulator/language.h"

#include "backends/simt/context.h"
#include "backends/simt/emulator/early.h"
#include "backends/simt/emulator/group_calls.h"
#include "backends/simt/emulator/lane.h"
#include "backends/simt/emulator/launch.h"
#include "backends/simt/emulator/matrix_products.h"
#include "backends/simt/emulator/memory.h"
#include "backends/simt/emulator/shared.h"
#include "backends/simt/geometry.h"
#include "backends/simt/vector.h"
