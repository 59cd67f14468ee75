#pragma once

#include <cstdint>

#include "backends/simt/kernels/norm/norm_gradient.h"

namespace infini_train::simt {

/// Lanes of a block of NormBackwardRingKernel.
inline constexpr int kMaxRingLanes = 256;

/// kRows neighbouring rows that a block works on, in shared memory, and as many that are under way:
/// to a second half of it, or to registers where copies to shared memory make a lane wait. Each
/// lane has kPerLane vectors of a row, which no other lane touches: it needs no barrier.
template <typename T, int N, int kPerLane, int kRows>
class RowRing {
 public:
  SIMT_DEVICE explicit RowRing(const Shared<T>& memory) : memory_(memory) {}

  static std::size_t Bytes(int lanes) {
    return std::size_t{kHalves} * kRows * kArrays * kPerLane * static_cast<std::size_t>(lanes) *
           sizeof(Vec<T, N>);
  }

  /// The column of the lane's vector v.
  SIMT_DEVICE static std::int64_t Column(int v) {
    return static_cast<std::int64_t>(v * BlockSize() + ThreadIndex()) * N;
  }

  /// Asks for the rows from `first` on, those that exist.
  SIMT_DEVICE void Ask(const NormBackwardArguments<T>& args, std::int64_t first) {
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (first + r >= args.rows || Column(v) >= args.hidden) continue;
        const std::int64_t i = (first + r) * args.hidden + Column(v);
        AskForOne(args.x + i, r, 0, v);
        AskForOne(args.grad_y + i, r, 1, v);
        if (args.grad_sum != nullptr) AskForOne(args.grad_sum + i, r, 2, v);
      }
    }
    CommitCopies();
  }

  /// Makes the rows that were asked for the present ones, and asks for those from `first` on.
  SIMT_DEVICE void Advance(const NormBackwardArguments<T>& args, std::int64_t first) {
    if constexpr (kCopiesAreAsync) {
      half_ ^= 1;
    } else {
      SIMT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        SIMT_UNROLL
        for (int array = 0; array < kArrays; ++array) {
          SIMT_UNROLL
          for (int v = 0; v < kPerLane; ++v)
            memory_.Store(At(half_, r, array, v), ahead_[r][array][v].Unpack());
        }
      }
    }
    Ask(args, first);
    WaitForCopies<1>();
  }

  /// A vector of a present row.
  SIMT_DEVICE void Read(ComputeType<T> (&numbers)[N], int row, int array, int v) const {
    Packed<T, N>(memory_.template Load<N>(At(half_, row, array, v))).Widen(numbers);
  }

 private:
  static constexpr int kArrays = 3;
  static constexpr int kHalves = kCopiesAreAsync ? 2 : 1;

  SIMT_DEVICE static int At(int half, int row, int array, int v) {
    return ((((half * kRows + row) * kArrays + array) * kPerLane + v) * BlockSize() +
            ThreadIndex()) *
           N;
  }

  SIMT_DEVICE void AskForOne(const T* from, int row, int array, int v) {
    if constexpr (kCopiesAreAsync) {
      CopyAsync<N>(memory_, At(half_ ^ 1, row, array, v), from);
    } else {
      ahead_[row][array][v] = Packed<T, N>::Of(from);
    }
  }

  Shared<T> memory_;
  int half_ = 0;  // where the present rows are
  Packed<T, N> ahead_[kRows][kArrays][kPerLane];
};

/// Means and reciprocal standard deviations of kRows rows; those of the first row for rows that do
/// not exist.
template <typename C, int kRows, bool centered>
struct RowStatistic {
  C mean[kRows];
  C rstd[kRows];

  template <typename Args>
  SIMT_DEVICE void Load(const Args& args, std::int64_t first) {
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = first + r < args.rows ? first + r : 0;
      mean[r] = centered ? simt::Load(args.mean + row) : C(0);
      rstd[r] = simt::Load(args.rstd + row);
    }
  }
};

/// Rows of at most kPerLane vectors for each lane of a block, which takes kRows of them at a time
/// while the next ones come. Weights and the columns' sums stay in registers, nothing is read twice
/// from device memory, and kRows rows need one barrier.
template <typename T, int N, int kPerLane, int kRows, bool centered, bool sums_x>
SIMT_KERNEL void NormBackwardRingKernel(NormBackwardArguments<T> args) {
  using C = ComputeType<T>;
  constexpr int kGroups = kMaxRingLanes / kGroupWidth;
  SIMT_DYNAMIC_SHARED(T, memory);
  SIMT_SHARED(Pair<C>, parts, 2 * kRows * kGroups);
  using Ring = RowRing<T, N, kPerLane, kRows>;
  Ring ring(memory);
  const std::int64_t hidden = args.hidden;
  const C share = C(1) / static_cast<C>(hidden);

  C w[kPerLane][N] = {};
  C weight_sums[kPerLane][N] = {};
  C bias_sums[kPerLane][N] = {};
  C x_sums[kPerLane][N] = {};
  SIMT_UNROLL
  for (int v = 0; v < kPerLane; ++v) {
    if (Ring::Column(v) < hidden) args.weight.template Read<N>(Ring::Column(v), w[v]);
  }

  const std::int64_t step = GridSize() * kRows;
  // Batches in turn use one half of `parts` and the other one, so that one barrier is enough.
  int half = 0;
  RowStatistic<C, kRows, centered> next;
  next.Load(args, BlockIndex() * kRows);
  ring.Ask(args, BlockIndex() * kRows);
  for (std::int64_t first = BlockIndex() * kRows; first < args.rows; first += step, half ^= 1) {
    const RowStatistic<C, kRows, centered> rows = next;
    next.Load(args, first + step);
    ring.Advance(args, first + step);

    Pair<C> means[kRows] = {};
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (first + r >= args.rows || Ring::Column(v) >= hidden) continue;
        C x[N], grad_y[N];
        ring.Read(x, r, 0, v);
        ring.Read(grad_y, r, 1, v);
        Pair<C> sums{0, 0};
        SIMT_UNROLL
        for (int k = 0; k < N; ++k) {
          const C term = grad_y[k] * ((x[k] - rows.mean[r]) * rows.rstd[r]);
          weight_sums[v][k] += term;
          sums.g_n += term * w[v][k];
          if constexpr (centered) {
            bias_sums[v][k] += grad_y[k];
            sums.g += grad_y[k] * w[v][k];
          }
        }
        means[r] = AddPairs{}(means[r], sums);
      }
    }
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      means[r] = ReduceGroup<kGroupWidth>(means[r], AddPairs{});
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
      const C mean_g = means[r].g * share;
      const C factor = means[r].g_n * share * rows.rstd[r];
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (first + r >= args.rows || Ring::Column(v) >= hidden) continue;
        C x[N], grad_y[N], grad_x[N];
        C direct[N] = {};
        ring.Read(x, r, 0, v);
        ring.Read(grad_y, r, 1, v);
        if (args.grad_sum != nullptr) ring.Read(direct, r, 2, v);
        SIMT_UNROLL
        for (int k = 0; k < N; ++k) {
          const C from_mean = grad_y[k] * w[v][k] - mean_g;
          grad_x[k] = rows.rstd[r] * (from_mean - (x[k] - rows.mean[r]) * factor) + direct[k];
          if constexpr (sums_x) x_sums[v][k] += grad_x[k];
        }
        Store(args.grad_x + (first + r) * hidden + Ring::Column(v), Rounded<T>(grad_x));
      }
    }
  }

  if (args.partials == nullptr) return;
  constexpr int kSums = kColumnSums<centered, sums_x>;
  SIMT_UNROLL
  for (int v = 0; v < kPerLane; ++v) {
    if (Ring::Column(v) >= hidden) continue;
    C* const partials = args.partials + BlockIndex() * kSums * hidden + Ring::Column(v);
    StoreSums(partials, weight_sums[v]);
    if constexpr (centered) StoreSums(partials + hidden, bias_sums[v]);
    if constexpr (sums_x) StoreSums(partials + (kSums - 1) * hidden, x_sums[v]);
  }
}

}  // namespace infini_train::simt
