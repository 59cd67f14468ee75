#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace infini_train::simt {

inline constexpr int kMaxBlockSize = 1024;

/// Shape of a launch: blocks in the grid and lanes in a block. A grid with a zero is empty. Any
/// kernel starts with 256 lanes; chips refuse 512 to one that needs more than 128 registers a lane,
/// and 1024 to one that needs more than 64.
struct Geometry {
  std::int64_t grid_x = 1;
  std::int64_t grid_y = 1;
  std::int64_t grid_z = 1;
  int block = 256;
  std::size_t dynamic_shared_bytes = 0;
  /// The kernel calls WaitForEarlier(): where LaunchOverlap allows it, it begins when every block
  /// of the launch before it on the stream has called LetLaterBegin().
  bool begins_early = false;
};

/// Enough blocks for `n` elements, `per_thread` a lane, and no more than the device takes: the
/// kernel strides by GlobalThreadCount().
inline Geometry Linear(std::int64_t n, std::int64_t per_thread = 1, int block = 256) {
  const std::int64_t per_block = per_thread * block;
  const std::int64_t blocks = n / per_block + (n % per_block != 0);
  return {.grid_x = std::clamp<std::int64_t>(blocks, 0, kMaxGridX), .block = block};
}

/// A block for each row, and no more than the device takes: the kernel strides by GridSize().
inline Geometry Rows(std::int64_t rows, int block) {
  return {.grid_x = std::clamp<std::int64_t>(rows, 0, kMaxGridX), .block = block};
}

}  // namespace infini_train::simt
