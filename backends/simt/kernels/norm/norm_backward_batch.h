#pragma once

#include <cstdint>

#include "backends/simt/kernels/norm/norm_gradient.h"

namespace infini_train::simt {

/// Lanes of a block of NormBackwardBatchKernel, which needs many registers.
inline constexpr int kMaxBatchLanes = 256;

/// What a lane of a block holds of kRows neighbouring rows, kPerLane vectors of each: zeros behind
/// the rows' ends and for rows that do not exist.
template <typename T, int N, int kPerLane, int kRows, bool centered>
struct RowBatch {
  using C = ComputeType<T>;
  Packed<T, N> x[kRows][kPerLane];
  Packed<T, N> grad_y[kRows][kPerLane];
  Packed<T, N> direct[kRows][kPerLane];
  GradientRow<T, N, centered> rows[kRows];

  /// The first element of the lane's vector v in a row.
  SIMT_DEVICE static std::int64_t At(int v) {
    return static_cast<std::int64_t>(ThreadIndex() + v * BlockSize()) * N;
  }

  SIMT_DEVICE static RowBatch Of(const NormBackwardArguments<T>& args, std::int64_t first) {
    RowBatch batch = {};
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = first + r;
      if (row >= args.rows) continue;
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (At(v) >= args.hidden) continue;
        const std::int64_t i = row * args.hidden + At(v);
        batch.x[r][v] = Packed<T, N>::Of(args.x + i);
        batch.grad_y[r][v] = Packed<T, N>::Of(args.grad_y + i);
        if (args.grad_sum != nullptr) batch.direct[r][v] = Packed<T, N>::Of(args.grad_sum + i);
      }
      batch.rows[r] = {centered ? Load(args.mean + row) : C(0), Load(args.rstd + row)};
    }
    return batch;
  }
};

/// Rows of at most kPerLane vectors for each lane of a block, which takes kRows of them at a time
/// and reads the next ones before it uses these, so that there is always something under way.
/// Weights and the columns' sums stay in registers, nothing is read twice, and kRows rows need one
/// barrier.
template <typename T, int N, int kPerLane, int kRows, bool centered, bool sums_x>
SIMT_KERNEL void NormBackwardBatchKernel(NormBackwardArguments<T> args) {
  using C = ComputeType<T>;
  using Batch = RowBatch<T, N, kPerLane, kRows, centered>;
  constexpr int kGroups = kMaxBatchLanes / kGroupWidth;
  const std::int64_t hidden = args.hidden;
  const C share = C(1) / static_cast<C>(hidden);

  C w[kPerLane][N] = {};
  C weight_sums[kPerLane][N] = {};
  C bias_sums[centered ? kPerLane : 1][N] = {};
  C x_sums[sums_x ? kPerLane : 1][N] = {};
  SIMT_UNROLL
  for (int v = 0; v < kPerLane; ++v) {
    if (Batch::At(v) < hidden) args.weight.template Read<N>(Batch::At(v), w[v]);
  }

  SIMT_SHARED(Pair<C>, parts, 2 * kRows * kGroups);
  // Batches in turn use one half of `parts` and the other one, so that one barrier is enough.
  int half = 0;
  const std::int64_t step = GridSize() * kRows;
  Batch batch = Batch::Of(args, BlockIndex() * kRows);
  for (std::int64_t first = BlockIndex() * kRows; first < args.rows; first += step, half ^= 1) {
    const Batch next = Batch::Of(args, first + step);
    Pair<C> means[kRows];
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      Pair<C> sums{0, 0};
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        const Vec<T, N> x = batch.x[r][v].Unpack();
        const Vec<T, N> grad_y = batch.grad_y[r][v].Unpack();
        batch.rows[r].AddTo(sums, w[v], x, grad_y);
        for (int k = 0; k < N; ++k) {
          weight_sums[v][k] += ToCompute(grad_y[k]) * batch.rows[r].Normalized(x[k]);
          if constexpr (centered) bias_sums[v][k] += ToCompute(grad_y[k]);
        }
      }
      means[r] = ReduceGroup<kGroupWidth>(sums, AddPairs{});
    }
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (GroupLane<kGroupWidth>() == 0)
        parts[(half * kRows + r) * kGroups + ThreadIndex() / kGroupWidth] = means[r];
    }
    SyncBlock();
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      means[r] = {0, 0};
      for (int group = 0; group < BlockSize() / kGroupWidth; ++group) {
        const Pair<C> part = parts[(half * kRows + r) * kGroups + group];
        means[r] = AddPairs{}(means[r], part);
      }
    }
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = first + r;
      if (row >= args.rows) continue;
      const Pair<C> mean{means[r].g * share, means[r].g_n * share};
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (Batch::At(v) >= hidden) continue;
        C grad_x[N];
        batch.rows[r].GradX(grad_x, mean, w[v], batch.x[r][v].Unpack(), batch.grad_y[r][v].Unpack(),
                            batch.direct[r][v].Unpack());
        Store(args.grad_x + row * hidden + Batch::At(v), Rounded<T>(grad_x));
        for (int k = 0; sums_x && k < N; ++k)
          x_sums[v][k] += grad_x[k];
      }
    }
    batch = next;
  }

  if (args.partials == nullptr) return;
  constexpr int kSums = kColumnSums<centered, sums_x>;
  C* const partials = args.partials + BlockIndex() * kSums * hidden;
  SIMT_UNROLL
  for (int v = 0; v < kPerLane; ++v) {
    if (Batch::At(v) >= hidden) continue;
    StoreSums(partials + Batch::At(v), weight_sums[v]);
    if constexpr (centered) StoreSums(partials + hidden + Batch::At(v), bias_sums[v]);
    if constexpr (sums_x) StoreSums(partials + (kSums - 1) * hidden + Batch::At(v), x_sums[v]);
  }
}

}  // namespace infini_train::simt
