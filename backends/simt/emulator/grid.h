#pragma once

#include <optional>
#include <string>

#include "backends/simt/emulator/launch.h"

namespace infini_train::simt::emulator {

/// Runs all blocks of a launch, on the calling thread and, where it takes longer, on others.
/// Returns the message of the first block that had a fault; the blocks after it may not have run.
std::optional<std::string> RunGrid(const Launched& launched);

}  // namespace infini_train::simt::emulator
