#pragma once

#include "backends/simt/emulator/platform.h"
