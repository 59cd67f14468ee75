#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/simt/kernels/norm/norm_gradient.h"

namespace infini_train::simt {

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

/// kRows neighbouring rows that a team works on, in shared memory, and as many that are under way:
/// to a second half of it, or to registers where copies to shared memory make a lane wait. Each
/// lane has kPerLane vectors of a row, which no other lane touches: it needs no barrier.
template <typename RowTeam, typename Element, int kVector, int kVectors, int kRowsAtOnce>
class RowRing {
 public:
  using Team = RowTeam;
  using T = Element;
  static constexpr int N = kVector;
  static constexpr int kPerLane = kVectors;
  static constexpr int kRows = kRowsAtOnce;
  static constexpr bool kIsGroup = std::is_same_v<Team, GroupTeam>;
  /// Lanes of a block, at most.
  static constexpr int kMaxLanes = kIsGroup ? 128 : 256;
  /// Blocks that a multiprocessor has 64K registers for, where a lane has a weight and three sums
  /// for each of its columns. Whole blocks' rows leave memory for two.
  static constexpr int kResidentBlocks =
      Min(kIsGroup ? 8 : 2,
          64 * 1024 / kMaxLanes / (kPerLane * N * static_cast<int>(sizeof(ComputeType<T>)) + 60));
  // The shared memory of a group's rows has room for its sums.
  static_assert(2 * sizeof(T) >= sizeof(ComputeType<T>));

  SIMT_DEVICE RowRing(const Shared<T>& memory, const NormBackwardArguments<T>& args)
      : memory_(memory) {
    if (args.grad_sum != nullptr) return;
    SIMT_UNROLL
    for (int row = 0; row < kHalves * kRows; ++row) {
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v)
        memory_.Store(At(0, row, 2, v), Vec<T, N>{});
    }
  }

  static std::size_t Bytes(int lanes) {
    return std::size_t{kHalves} * kRows * kArrays * kPerLane * static_cast<std::size_t>(lanes) *
           sizeof(Vec<T, N>);
  }

  /// The column of the lane's vector v.
  SIMT_DEVICE static std::int64_t Column(int v) { return PlaceOfVector<Team, N>(v); }

  /// Whether a row of `hidden` elements has the lane's vector v. A group has all but the last step.
  SIMT_DEVICE static bool Has(int v, std::int64_t hidden) {
    return (kIsGroup && v < kPerLane - kCachedStep<N>) || Column(v) < hidden;
  }

  /// Asks for the rows from `first` on, those that exist.
  SIMT_DEVICE void Ask(const NormBackwardArguments<T>& args, std::int64_t first) {
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= args.rows) continue;
      const std::int64_t begin = (first + r) * args.hidden;
      AskForRow(args.x + begin, r, 0, args.hidden);
      AskForRow(args.grad_y + begin, r, 1, args.hidden);
      if (args.grad_sum != nullptr) AskForRow(args.grad_sum + begin, r, 2, args.hidden);
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

  /// A vector of a present row of x, grad_y or grad_sum, with zeros for an absent one.
  SIMT_DEVICE void Read(ComputeType<T> (&numbers)[N], int row, int array, int v) const {
    Packed<T, N>(memory_.template Load<N>(At(half_, row, array, v))).Widen(numbers);
  }

 private:
  static constexpr int kArrays = 3;
  static constexpr int kHalves = kCopiesAreAsync ? 2 : 1;

  SIMT_DEVICE static int At(int half, int row, int array, int v) {
    const int batch = Team::InBlock() * kHalves + half;
    return ((((batch * kRows + row) * kArrays + array) * kPerLane + v) * Team::Size() +
            Team::Lane()) *
           N;
  }

  SIMT_DEVICE void AskForRow(const T* from, int row, int array, std::int64_t hidden) {
    SIMT_UNROLL
    for (int v = 0; v < kPerLane; ++v) {
      if (!Has(v, hidden)) continue;
      if constexpr (kCopiesAreAsync) {
        CopyAsync<N>(memory_, At(half_ ^ 1, row, array, v), from + Column(v));
      } else {
        ahead_[row][array][v] = Packed<T, N>::Of(from + Column(v));
      }
    }
  }

  Shared<T> memory_;
  int half_ = 0;  // where the present rows are
  Packed<T, N> ahead_[kRows][kArrays][kPerLane];
};

/// Adds up, for each of the rows, the pairs of all groups of a block, at most kGroups. Calls in
/// turn use one half of the shared memory and the other one, so that one barrier is enough.
template <int kGroups, typename C, int kRows>
SIMT_DEVICE void SumOverGroups(Pair<C> (&pairs)[kRows], int half) {
  SIMT_SHARED(Pair<C>, parts, 2 * kRows * kGroups);
  SIMT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (GroupLane<kGroupWidth>() == 0)
      parts[(half * kRows + r) * kGroups + ThreadIndex() / kGroupWidth] = pairs[r];
  }
  SyncBlock();
  SIMT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    pairs[r] = {0, 0};
    for (int group = 0; group < BlockSize() / kGroupWidth; ++group) {
      const Pair<C> part = parts[(half * kRows + r) * kGroups + group];
      pairs[r] = AddPairs{}(pairs[r], part);
    }
  }
}

/// Rows of at most kPerLane vectors for each lane of a team, which takes kRows of them at a time
/// while the next ones come. Weights and the columns' sums stay in registers, nothing is read twice
/// from device memory, and kRows rows of a block need one barrier.
template <typename Ring, bool centered, bool sums_x, typename T = typename Ring::T>
SIMT_KERNEL SIMT_RESIDENT(Ring::kMaxLanes, Ring::kResidentBlocks) void NormBackwardRingKernel(
    NormBackwardArguments<T> args) {
  using Team = typename Ring::Team;
  using C = ComputeType<T>;
  constexpr int N = Ring::N;
  constexpr int kPerLane = Ring::kPerLane;
  constexpr int kRows = Ring::kRows;
  SIMT_DYNAMIC_SHARED(T, memory);
  Ring ring(memory, args);
  const std::int64_t hidden = args.hidden;
  const C share = C(1) / static_cast<C>(hidden);

  C w[kPerLane][N] = {};
  C weight_sums[kPerLane][N] = {};
  C bias_sums[kPerLane][N] = {};
  C x_sums[kPerLane][N] = {};
  SIMT_UNROLL
  for (int v = 0; v < kPerLane; ++v) {
    if (Ring::Has(v, hidden)) args.weight.template Read<N>(Ring::Column(v), w[v]);
  }

  const std::int64_t begin = Team::First() * kRows;
  const std::int64_t step = Team::Count() * kRows;
  int half = 0;
  RowStatistic<C, kRows, centered> next;
  next.Load(args, begin);
  ring.Ask(args, begin);
  for (std::int64_t first = begin; first < args.rows; first += step, half ^= 1) {
    const RowStatistic<C, kRows, centered> rows = next;
    next.Load(args, first + step);
    ring.Advance(args, first + step);

    // A number x of row r is normalised to x * rstd + shift.
    C shift[kRows];
    Pair<C> means[kRows] = {};
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      shift[r] = -rows.mean[r] * rows.rstd[r];
      if (first + r >= args.rows) continue;
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (!Ring::Has(v, hidden)) continue;
        C x[N], grad_y[N];
        ring.Read(x, r, 0, v);
        ring.Read(grad_y, r, 1, v);
        Pair<C> sums{0, 0};
        SIMT_UNROLL
        for (int k = 0; k < N; ++k) {
          const C term = grad_y[k] * (x[k] * rows.rstd[r] + shift[r]);
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
    for (int r = 0; r < kRows; ++r)
      means[r] = ReduceGroup<kGroupWidth>(means[r], AddPairs{});
    if constexpr (!Ring::kIsGroup) SumOverGroups<Ring::kMaxLanes / kGroupWidth>(means, half);
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      // grad_x = rstd * (g - mean_g - n * mean_g_n) + direct, with n as a multiple of x and a rest.
      const C mean_g_n = means[r].g_n * share;
      const C slope = -mean_g_n * rows.rstd[r];
      const C rest = -means[r].g * share - mean_g_n * shift[r];
      if (first + r >= args.rows) continue;
      SIMT_UNROLL
      for (int v = 0; v < kPerLane; ++v) {
        if (!Ring::Has(v, hidden)) continue;
        C x[N], grad_y[N], direct[N], grad_x[N];
        ring.Read(x, r, 0, v);
        ring.Read(grad_y, r, 1, v);
        ring.Read(direct, r, 2, v);
        SIMT_UNROLL
        for (int k = 0; k < N; ++k) {
          grad_x[k] = (grad_y[k] * w[v][k] + (x[k] * slope + rest)) * rows.rstd[r] + direct[k];
          if constexpr (sums_x) x_sums[v][k] += grad_x[k];
        }
        Packed<T, N>::Narrow(grad_x).Store(args.grad_x + (first + r) * hidden + Ring::Column(v));
      }
    }
  }

  if (args.partials == nullptr) return;
  constexpr int kSums = kColumnSums<centered, sums_x>;
  constexpr int kWidth = N < kMaxVectorWidth<C> ? N : kMaxVectorWidth<C>;
  C* const partials = args.partials + BlockIndex() * kSums * hidden;
  const Shared<C> of_groups = memory.template As<C>();
  const int size = kSums * static_cast<int>(hidden);
  const auto put = [&](int sum, const C(&sums)[kPerLane][N]) {
    SIMT_UNROLL
    for (int v = 0; v < kPerLane; ++v) {
      if (!Ring::Has(v, hidden)) continue;
      SIMT_UNROLL
      for (int first = 0; first < N; first += kWidth) {
        Vec<C, kWidth> values;
        SIMT_UNROLL
        for (int k = 0; k < kWidth; ++k)
          values[k] = sums[v][first + k];
        const std::int64_t i = sum * hidden + Ring::Column(v) + first;
        if constexpr (Ring::kIsGroup) {
          of_groups.Store(Team::InBlock() * size + i, values);
        } else {
          Store(partials + i, values);
        }
      }
    }
  };
  if constexpr (Ring::kIsGroup) SyncBlock();  // the rows of all groups are done with
  put(0, weight_sums);
  if constexpr (centered) put(1, bias_sums);
  if constexpr (sums_x) put(kSums - 1, x_sums);
  if constexpr (Ring::kIsGroup) {
    SyncBlock();
    for (int i = ThreadIndex() * kWidth; i < size; i += BlockSize() * kWidth) {
      Vec<C, kWidth> total = of_groups.template Load<kWidth>(i);
      for (int group = 1; group < Team::PerBlock(); ++group) {
        const Vec<C, kWidth> part = of_groups.template Load<kWidth>(group * size + i);
        SIMT_UNROLL
        for (int k = 0; k < kWidth; ++k)
          total[k] += part[k];
      }
      Store(partials + i, total);
    }
  }
}

}  // namespace infini_train::simt
