#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/simt/emulator/platform.h"

namespace infini_train::simt::emulator {

/// Finds pairs of accesses to one byte of shared memory, by two lanes and not both reads or both
/// atomic, that no barrier of the block and no chain of calls of logical groups orders.
///
/// Lanes of one warp have vector clocks that group calls join; a barrier orders everything, so that
/// only accesses since the last one are remembered.
class RaceDetector {
 public:
  void BeginBlock(int block_size);
  void OnBarrier();
  void OnGroupCall(int first_lane, int width);

  /// Notes what the running lane does with `bytes` from `offset` on in shared memory; throws a
  /// LaneFault if another lane's access is not ordered with it.
  void OnAccess(AccessKind kind, std::size_t offset, std::size_t bytes, const char* name,
                const Place& place);

 private:
  static constexpr std::size_t kCellBytes = 4;

  struct Access {
    std::uint32_t clock;
    std::int16_t lane;
    AccessKind kind;
    std::uint8_t mask;  ///< bytes of the cell
    Place place;
  };
  struct Cell {
    std::uint64_t epoch = 0;
    std::vector<Access> accesses;
  };
  using Clocks = std::array<std::uint32_t, kMaxWarpSize>;

  void ResetClocks();
  bool Precedes(const Access& access, int lane_index) const;
  void OnCell(Cell& cell, const Access& access, std::size_t offset, const char* name);

  int block_size_ = 0;
  std::uint64_t epoch_ = 0;
  bool clocks_are_reset_ = false;
  std::vector<Clocks> clocks_;  ///< by lane: what it knows of each lane of its warp
  std::vector<Cell> cells_;
};

}  // namespace infini_train::simt::emulator
