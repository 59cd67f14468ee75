#pragma once

#include <cstdint>

namespace infini_train::simt::emulator {

/// Bytes of global memory that kernels have read and written.
struct Traffic {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};

/// Of all launches that have finished, since the start of the process.
Traffic GetTraffic();

}  // namespace infini_train::simt::emulator
