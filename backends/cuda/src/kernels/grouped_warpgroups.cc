// Apart from other kernels: compiled for the one architecture that has the instructions.
#include "kernels/grouped_warpgroups.h"

#include <cstdint>

#include "kernels/grouped_tiles.h"
#include "kernels/warpgroup.h"

namespace infini_train::cuda::grouped {
namespace {

template <typename T, bool kAAlongDepth, bool kBAlongDepth>
SIMT_KERNEL void __launch_bounds__(kThreads, 1) GroupedWarpgroupsKernel(Problem<T> problem) {
  using Copies = Producer<T, kAAlongDepth, kBAlongDepth>;
  constexpr int kRows = 64;  // of a warpgroup
  constexpr int kSlice = 16;
  constexpr int kAhead = kWarpgroupStages - 2;
  __shared__ Tile ring[Copies::kRing];
  SIMT_DYNAMIC_SHARED(std::uint16_t, shared);
  const std::uint32_t buffers =
      (SharedAddress(&shared[0]) + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = warp / 4;
  Copies copies(problem, buffers, ring);
  const auto start_copies = [&] {
#pragma unroll
    for (int part = 0; part < Copies::kParts; ++part)
      copies.Start(part);
  };
  for (int step = 0; step < kAhead; ++step)
    start_copies();

  __syncthreads();

  Sums<1, kTileN / 8> sums;
#pragma unroll
  for (int j = 0; j < kTileN / 8; ++j) {
#pragma unroll
    for (int x = 0; x < 4; ++x)
      sums[0][j][x] = 0;
  }
  int stage = 0;
  int number = 0;
  int steps = ring[0].steps;
  while (steps > 0) {
    for (bool add = false; steps > 0; --steps, add = true) {
      // The step's operands are in shared memory, as every lane's copies of it are done, and every
      // lane has waited for its products of the step before the last one.
      simt::WaitForCopies<kAhead - 1>();
      FenceForProducts();
      __syncthreads();
      const std::uint32_t a = buffers + stage * kBufferBytes + group * kRows * kRowBytes;
      const std::uint32_t b = buffers + stage * kBufferBytes + kBufferB;
      BeginProducts();
#pragma unroll
      for (int depth = 0; depth < kDepth; depth += kSlice) {
        const int a_offset = depth * (kAAlongDepth ? 2 : kRowBytes);
        const int b_offset = depth * (kBAlongDepth ? 2 : kRowBytes);
        StartProduct<T, kAAlongDepth, kBAlongDepth>(
            sums[0], DescribeOperand(a + a_offset, kPieceBytes),
            DescribeOperand(b + b_offset, kPieceBytes), add || depth > 0);
      }
      CommitProducts();
      WaitForProducts<1>();
      start_copies();
      stage = stage + 1 == kWarpgroupStages ? 0 : stage + 1;
    }
    WaitForProducts<0>();
    FenceSums(sums[0]);
    const Tile tile = ring[number % Copies::kRing];
    Write<T, 1, kTileN / 8>(problem, tile, sums, group * kRows + warp % 4 * 16, 0);
    FenceSums(sums[0]);
    // Said before the barrier of the step that was the last one: its copies run two steps ahead.
    static_assert(kAhead >= 2);
    ++number;
    steps = ring[number % Copies::kRing].steps;
  }
}

}  // namespace

template <typename T>
Kernel<T> WarpgroupsKernel(bool a_along_depth, bool b_along_depth) {
  if (!a_along_depth) return &GroupedWarpgroupsKernel<T, false, false>;
  return b_along_depth ? &GroupedWarpgroupsKernel<T, true, true>
                       : &GroupedWarpgroupsKernel<T, true, false>;
}
template Kernel<BFloat16> WarpgroupsKernel<BFloat16>(bool, bool);
template Kernel<Float16> WarpgroupsKernel<Float16>(bool, bool);

}  // namespace infini_train::cuda::grouped
