#pragma once

/// The dialect of this provider: the emulator's.
#include "backends/simt/emulator/platform.h"
