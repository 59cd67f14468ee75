#pragma once

#include <cstdint>

namespace infini_train::simt {
namespace emulator {

/// What the running lane sees of the launch, for each thread that runs blocks.
struct LaneView {
  int thread = 0;
  int block_size = 0;
  bool check_races = false;
  bool early = false;  ///< before WaitForEarlier() of a launch that begins early
  std::int64_t block[3] = {};
  std::int64_t grid[3] = {};
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};

/// A lane never changes its thread, so that its address may be kept across waits.
extern constinit thread_local LaneView lane
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

}  // namespace emulator

/// Lanes that execute together on the emulated device: 32 or 64.
int WarpSize();

inline int ThreadIndex() {
  return emulator::lane.thread;
}
inline int BlockSize() {
  return emulator::lane.block_size;
}
inline std::int64_t BlockIndex() {
  return emulator::lane.block[0];
}
inline std::int64_t BlockIndexY() {
  return emulator::lane.block[1];
}
inline std::int64_t BlockIndexZ() {
  return emulator::lane.block[2];
}
inline std::int64_t GridSize() {
  return emulator::lane.grid[0];
}
inline std::int64_t GridSizeY() {
  return emulator::lane.grid[1];
}
inline std::int64_t GridSizeZ() {
  return emulator::lane.grid[2];
}
inline std::int64_t GlobalThreadIndex() {
  return BlockIndex() * BlockSize() + ThreadIndex();
}
inline std::int64_t GlobalThreadCount() {
  return GridSize() * BlockSize();
}

}  // namespace infini_train::simt
