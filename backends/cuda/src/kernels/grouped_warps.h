#pragma once

#include <cstdint>

#include "kernels/grouped_tiles.h"

/// The products by warps: each loads its operands to registers.
namespace infini_train::cuda::grouped {

// A block's 2 by 4 warps compute kWarpTile by kWarpTile each.
inline constexpr int kWarpTile = 64;
inline constexpr int kWarpsN = kTileN / kWarpTile;
static_assert(kThreads / 32 * kWarpTile * kWarpTile == kTileM * kTileN &&
              kWarpTile == kRowElements);

/// Where in an operand's buffer a lane finds its row of the first matrices of its warp, which are
/// those of `extent` on. kExtentInLow: whether it is the lowest bit of a matrix' number that moves
/// along the extent, the next one along the depth, or the other way round.
template <bool kAlongDepth, bool kExtentInLow>
SIMT_DEVICE inline std::uint32_t LoadOffset(int extent) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int low = lane / 8 % 2, high = lane / 16;
  const int e = kExtentInLow ? low : high, d = kExtentInLow ? high : low;
  // The lowest bit of the chunk's number is here; the others are what Load adds.
  const int row = lane % 8 + 8 * (kAlongDepth ? e : d);
  const int chunk = (kAlongDepth ? d : e) ^ (lane % 8);
  const int begin = kAlongDepth ? extent * kRowBytes : extent / kRowElements * kPieceBytes;
  return begin + row * kRowBytes + chunk * kChunk * 2;
}

/// Loads the matrices of 16 by 16 elements that begin `extent` and `depth` (multiples of 16 below
/// 64) behind those of `offset`.
template <bool kAlongDepth>
SIMT_DEVICE inline void Load(std::uint32_t (&words)[4], std::uint32_t buffer, std::uint32_t offset,
                             int extent, int depth) {
  const int along_row = kAlongDepth ? depth : extent;
  const int row = kAlongDepth ? extent : depth;
  LoadMatrices<!kAlongDepth>(words, buffer + (offset ^ (along_row * 2)) + row * kRowBytes);
}

template <typename T, bool kAAlongDepth, bool kBAlongDepth>
SIMT_KERNEL void __launch_bounds__(kThreads, 1) GroupedWarpsKernel(Problem<T> problem) {
  using Copies = Producer<T, kAAlongDepth, kBAlongDepth>;
  constexpr int kMTiles = kWarpTile / 16;
  constexpr int kNPairs = kWarpTile / 16;  // two tiles of 8 columns are loaded together
  constexpr int kSlices = kDepth / 16;
  __shared__ Tile ring[Copies::kRing];
  SIMT_DYNAMIC_SHARED(std::uint16_t, shared);
  const std::uint32_t buffers = SharedAddress(&shared[0]);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / kWarpsN * kWarpTile;
  const int column = warp % kWarpsN * kWarpTile;
  const std::uint32_t a_offset = LoadOffset<kAAlongDepth, true>(row);
  const std::uint32_t b_offset = LoadOffset<kBAlongDepth, false>(column);
  std::uint32_t a[2][kMTiles][4];
  std::uint32_t b[2][kNPairs][4];
  const auto load = [&](int set, std::uint32_t buffer, int slice) {
#pragma unroll
    for (int i = 0; i < kMTiles; ++i)
      Load<kAAlongDepth>(a[set][i], buffer, a_offset, i * 16, slice * 16);
#pragma unroll
    for (int j = 0; j < kNPairs; ++j)
      Load<kBAlongDepth>(b[set][j], buffer + kBufferB, b_offset, j * 16, slice * 16);
  };
  // Until the next step's operands are in shared memory, as every lane's copies of it are done, and
  // every lane is done with the buffer of the step before.
  const auto wait = [&] {
    if (problem.stages == 4) {
      simt::WaitForCopies<2>();
    } else if (problem.stages == 3) {
      simt::WaitForCopies<1>();
    } else {
      simt::WaitForCopies<0>();
    }
    __syncthreads();
  };

  Copies copies(problem, buffers, ring);
  for (int step = 0; step + 1 < problem.stages; ++step) {
    for (int part = 0; part < Copies::kParts; ++part)
      copies.Start(part);
  }
  wait();
  int number = 0;
  int steps = ring[0].steps;
  int stage = 0;
  load(0, buffers, 0);
  Sums<kMTiles, 2 * kNPairs> sums = {};
  while (steps > 0) {
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      // The step's last matrices are in registers: those of the next step follow.
      if (slice + 1 == kSlices) {
        wait();
        stage = stage + 1 == problem.stages ? 0 : stage + 1;
      }
      load((slice + 1) % 2, buffers + stage * kBufferBytes, (slice + 1) % kSlices);
      if (slice < Copies::kParts) copies.Start(slice);
#pragma unroll
      for (int i = 0; i < kMTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kNPairs; ++j) {
          const auto& pair = b[slice % 2][j];
          simt::MatrixProducts<T>::Add(sums[i][2 * j], a[slice % 2][i], {pair[0], pair[1]});
          simt::MatrixProducts<T>::Add(sums[i][2 * j + 1], a[slice % 2][i], {pair[2], pair[3]});
        }
      }
    }
    if (--steps > 0) continue;
    const Tile tile = ring[number % Copies::kRing];
    Write<T, kMTiles, 2 * kNPairs>(problem, tile, sums, row, column);
#pragma unroll
    for (int i = 0; i < kMTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kNPairs; ++j) {
#pragma unroll
        for (int x = 0; x < 4; ++x)
          sums[i][j][x] = 0;
      }
    }
    ++number;
    steps = ring[number % Copies::kRing].steps;
  }
}

}  // namespace infini_train::cuda::grouped
