#pragma once

#include <cstdint>

#include "backends/simt/kernels/norm/norm_gradient.h"

namespace infini_train::simt {

/// Lanes of a block of NormBackwardBatchKernel, which needs many registers.
inline constexpr int kMaxBatchLanes = 256;

/// Rows of at most kPerLane vectors for each lane of a block, which reads kRows of them before it
/// uses the first, and keeps weights and its columns' sums in registers: there is one barrier for
/// kRows rows and nothing is read twice.
template <typename T, int N, int kPerLane, int kRows, bool centered>
SIMT_KERNEL void NormBackwardBatchKernel(NormBackwardArguments<T> args) {
  using C = ComputeType<T>;
  constexpr int kGroups = kMaxBatchLanes / kGroupWidth;
  SIMT_SHARED(Pair<C>, parts, 2 * kRows * kGroups);
  const std::int64_t hidden = args.hidden;
  const int vectors = static_cast<int>(hidden / N);
  const int lane = ThreadIndex();
  const int size = BlockSize();
  const C share = C(1) / static_cast<C>(hidden);

  C w[kPerLane][N] = {};
  C weight_sums[kPerLane][N] = {};
  C bias_sums[centered ? kPerLane : 1][N] = {};
  SIMT_UNROLL
  for (int v = 0; v < kPerLane; ++v) {
    if (lane + v * size < vectors)
      args.weight.template Read<N>(static_cast<std::int64_t>(lane + v * size) * N, w[v]);
  }

  // Rows in turn use one half of `parts` and the other one, so that one barrier is enough.
  int half = 0;
  for (std::int64_t first = BlockIndex() * kRows; first < args.rows;
       first += GridSize() * kRows, half ^= 1) {
    Packed<T, N> xs[kRows][kPerLane];
    Packed<T, N> gs[kRows][kPerLane];
    Packed<T, N> direct[kRows][kPerLane];
    GradientRow<T, N, centered> rows[kRows] = {};
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = first + r;
      if (row >= args.rows) continue;
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (lane + v * size >= vectors) continue;
        const std::int64_t i = row * hidden + static_cast<std::int64_t>(lane + v * size) * N;
        xs[r][v] = Packed<T, N>::Of(args.x + i);
        gs[r][v] = Packed<T, N>::Of(args.grad_y + i);
        if (args.grad_sum != nullptr) direct[r][v] = Packed<T, N>::Of(args.grad_sum + i);
      }
      rows[r] = {centered ? Load(args.mean + row) : C(0), Load(args.rstd + row)};
    }
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      Pair<C> sums{0, 0};
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        const Vec<T, N> x = xs[r][v].Unpack();
        const Vec<T, N> grad_y = gs[r][v].Unpack();
        rows[r].AddTo(sums, w[v], x, grad_y);
        for (int k = 0; k < N; ++k) {
          weight_sums[v][k] += ToCompute(grad_y[k]) * rows[r].Normalized(x[k]);
          if constexpr (centered) bias_sums[v][k] += ToCompute(grad_y[k]);
        }
      }
      sums = ReduceGroup<kGroupWidth>(sums, AddPairs{});
      if (GroupLane<kGroupWidth>() == 0)
        parts[(half * kRows + r) * kGroups + lane / kGroupWidth] = sums;
    }
    SyncBlock();
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      Pair<C> means{0, 0};
      for (int group = 0; group < size / kGroupWidth; ++group) {
        const Pair<C> part = parts[(half * kRows + r) * kGroups + group];
        means = AddPairs{}(means, part);
      }
      means = {means.g * share, means.g_n * share};
      const std::int64_t row = first + r;
      if (row >= args.rows) continue;
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (lane + v * size >= vectors) continue;
        const std::int64_t i = row * hidden + static_cast<std::int64_t>(lane + v * size) * N;
        Store(args.grad_x + i, rows[r].GradX(means, w[v], xs[r][v].Unpack(), gs[r][v].Unpack(),
                                             direct[r][v].Unpack()));
      }
    }
  }

  if (args.partials == nullptr) return;
  C* const partials = args.partials + BlockIndex() * (centered ? 2 * hidden : hidden);
  SIMT_UNROLL
  for (int v = 0; v < kPerLane; ++v) {
    if (lane + v * size >= vectors) continue;
    const std::int64_t i = static_cast<std::int64_t>(lane + v * size) * N;
    StoreSums(partials + i, weight_sums[v]);
    if constexpr (centered) StoreSums(partials + hidden + i, bias_sums[v]);
  }
}

}  // namespace infini_train::simt
