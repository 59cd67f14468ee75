#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/simt/kernels/reduction/reducers.h"
#include "backends/simt/packed.h"
#include "backends/simt/strided.h"

/// Reductions over any dimensions of a tensor with any strides.
///
/// Lanes of a block share out the elements of a result, and a block makes several results where
/// these are short. Where there are too few results to fill a device, the elements are cut into
/// pieces, one block each, whose partial results a second kernel combines. The order in which
/// elements meet depends on nothing but extents and on which dimensions vary fastest.
namespace infini_train::simt {

inline constexpr int kReduceBlock = 256;

/// How a reduction is shared out.
struct ReduceLoop {
  StridedIndex<2> kept;     ///< results: offsets into x and out
  StridedIndex<1> reduced;  ///< elements of a result: offsets into x
  const void* x = nullptr;
  void* out = nullptr;
  /// Lanes for one result, a power of two. Neighbouring lanes take neighbouring elements, or
  /// neighbouring results where `columns`.
  int lanes = 1;
  bool columns = false;
  /// Vectors of neighbouring elements are contiguous and aligned.
  bool vectors = false;
  /// Neighbouring results that a lane makes, from vectors of x: above 1 only where `columns`.
  int wide = 1;
  /// Elements of a piece, and how many pieces there are.
  std::int64_t piece = 0;
  std::int64_t pieces = 1;

  /// Or vectors of results, where these are wide.
  int results_per_block() const { return kReduceBlock / lanes; }
};

/// Shares out the reduction of x over `dims` into out, which has extent 1 there. Where
/// `may_be_wide` lanes may make several results. Pieces are long enough for each lane to take
/// `min_turns` turns.
inline ReduceLoop PlanReduction(const Tensor& out, const Tensor& x, const Dims& dims,
                                bool may_be_wide = false, std::int64_t min_turns = 8) {
  Dims kept_shape;
  Dims kept_x;
  Dims kept_out;
  Dims reduced_shape;
  Dims reduced_x;
  for (int d = 0; d < x.rank(); ++d) {
    const bool is_reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    (is_reduced ? reduced_shape : kept_shape).push_back(x.shape()[d]);
    (is_reduced ? reduced_x : kept_x).push_back(x.strides()[d]);
    if (!is_reduced) kept_out.push_back(out.strides()[d]);
  }
  const MergedDims kept(kept_shape, {&kept_x, &kept_out});
  const MergedDims reduced(reduced_shape, {&reduced_x});

  ReduceLoop loop;
  loop.kept = StridedIndex<2>(kept);
  loop.reduced = StridedIndex<1>(reduced);
  loop.x = x.raw_data();
  loop.out = out.raw_data();
  const std::int64_t results = loop.kept.numel;
  const std::int64_t count = loop.reduced.numel;
  loop.columns = results > 1 && (count == 1 || kept.inner_stride(0) < reduced.inner_stride(0));
  const auto width = static_cast<std::int64_t>(kMaxVectorBytes / SizeOf(x.dtype()));
  const std::int64_t taken = loop.columns ? 1 : width;  // At a time by a lane.
  loop.vectors = !loop.columns && reduced.inner_stride(0) == 1 &&
                 reinterpret_cast<std::uintptr_t>(loop.x) % kMaxVectorBytes == 0 &&
                 (reduced.rank == 1 || reduced.inner_size() % width == 0);
  for (int d = 0; d < kept.rank; ++d)
    loop.vectors = loop.vectors && (kept.sizes[d] == 1 || kept.strides[d][0] % width == 0);
  for (int d = 0; d < reduced.rank - 1; ++d)
    loop.vectors = loop.vectors && reduced.strides[d][0] % width == 0;

  if (may_be_wide && loop.columns && reduced.rank == 1 && kept.inner_stride(0) == 1 &&
      kept.inner_size() % width == 0 &&
      reinterpret_cast<std::uintptr_t>(loop.x) % kMaxVectorBytes == 0) {
    bool aligned = reduced.sizes[0] == 1 || reduced.strides[0][0] % width == 0;
    for (int d = 0; d < kept.rank - 1; ++d)
      aligned = aligned && kept.strides[d][0] % width == 0;
    if (aligned) loop.wide = static_cast<int>(width);
  }

  // About four turns for each lane, before more lanes are worth it; whole groups for rows.
  const std::int64_t slots = results / loop.wide;
  const std::int64_t turns = (count + taken - 1) / taken;
  // Lanes for results side by side that fill a device by themselves.
  constexpr std::int64_t kManyLanes = std::int64_t{1} << 18;
  loop.lanes = 1;
  while (loop.lanes < kReduceBlock && loop.lanes * 4 < turns &&
         (loop.wide == 1 || loop.lanes * slots < kManyLanes))
    loop.lanes *= 2;
  if (loop.columns) {
    const auto neighbours = static_cast<int>(
        std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(slots, 32))));
    loop.lanes = std::min(loop.lanes, kReduceBlock / neighbours);
  }
  // Pieces to fill a device, each long enough to be worth a block: as many as have room at a time.
  const std::int64_t most_blocks = loop.wide > 1 ? 384 : 512;
  const std::int64_t blocks =
      std::max<std::int64_t>(1, (slots + loop.results_per_block() - 1) / loop.results_per_block());
  const std::int64_t unit = loop.lanes * taken;
  const std::int64_t most_pieces = (count + min_turns * unit - 1) / (min_turns * unit);
  loop.pieces =
      std::clamp<std::int64_t>(most_blocks / blocks, 1, std::max<std::int64_t>(most_pieces, 1));
  loop.piece =
      std::max<std::int64_t>(1, (count + loop.pieces * unit - 1) / (loop.pieces * unit)) * unit;
  loop.pieces = std::max<std::int64_t>(1, (count + loop.piece - 1) / loop.piece);
  return loop;
}

namespace detail {

/// Combines those of elements [begin, end) of the result at offset `base` that are lane `lane`'s.
/// The lanes take turns of kTaken neighbours.
template <int kTaken, typename T, typename Reducer>
SIMT_DEVICE typename Reducer::Accumulator ReduceLane(const Reducer& reducer, const ReduceLoop& loop,
                                                     std::int64_t base, std::int64_t begin,
                                                     std::int64_t end, int lane) {
  const T* const x = static_cast<const T*>(loop.x);
  typename Reducer::Accumulator total = reducer.Widen(reducer.Empty());
  const std::int64_t step = static_cast<std::int64_t>(loop.lanes) * kTaken;
  std::int64_t offset[1];
  for (std::int64_t i = begin + static_cast<std::int64_t>(lane) * kTaken; i < end;) {
    typename Reducer::Partial partial = reducer.Empty();
    for (int turn = 0; turn < kChain / kTaken && i < end; ++turn, i += step) {
      if (kTaken > 1 && loop.vectors && i + kTaken <= end) {
        loop.reduced.Locate(i, offset);
        const Vec<T, kTaken> values = Load<kTaken>(x + (base + offset[0]));
        for (int k = 0; k < kTaken; ++k)
          partial = reducer.Take(partial, values[k], i + k);
      } else {
        for (int k = 0; k < kTaken && i + k < end; ++k) {
          loop.reduced.Locate(i + k, offset);
          partial = reducer.Take(partial, Load(x + (base + offset[0])), i + k);
        }
      }
    }
    total = reducer.Combine(total, reducer.Widen(partial));
  }
  return total;
}

/// Combines the accumulators of the lanes of each result; lane 0 of it gets the whole. `distance`
/// is that of neighbouring lanes in the block. All lanes of the block must call it.
template <typename Reducer>
SIMT_DEVICE typename Reducer::Accumulator CombineLanes(const Reducer& reducer,
                                                       typename Reducer::Accumulator total,
                                                       int lane, int lanes, int distance) {
  using Accumulator = typename Reducer::Accumulator;
  if (lanes == 1) return total;
  SIMT_SHARED(Accumulator, totals, kReduceBlock);
  constexpr int kFan = 16;
  const int self = ThreadIndex();
  totals[self] = total;
  SyncBlock();
  if (lanes > kFan) {
    if (lane < kFan) {
      for (int other = lane + kFan; other < lanes; other += kFan) {
        const Accumulator next = totals[self + (other - lane) * distance];
        total = reducer.Combine(total, next);
      }
      totals[self] = total;
    }
    SyncBlock();
  }
  if (lane == 0) {
    for (int other = 1; other < kFan && other < lanes; ++other) {
      const Accumulator next = totals[self + other * distance];
      total = reducer.Combine(total, next);
    }
  }
  SyncBlock();
  return total;
}

/// A block for each group of results and, in y, each piece. With several pieces, accumulators go to
/// `partial` [pieces, results].
template <typename T, typename Reducer>
SIMT_KERNEL void ReduceKernel(ReduceLoop loop, Reducer reducer,
                              typename Reducer::Accumulator* partial) {
  constexpr int kTaken = kMaxVectorWidth<T>;
  const int per_block = BlockSize() / loop.lanes;
  const int distance = loop.columns ? per_block : 1;
  const int slot = loop.columns ? ThreadIndex() % per_block : ThreadIndex() / loop.lanes;
  const int lane = loop.columns ? ThreadIndex() / per_block : ThreadIndex() % loop.lanes;
  const std::int64_t begin = BlockIndexY() * loop.piece;
  const std::int64_t end =
      begin + loop.piece < loop.reduced.numel ? begin + loop.piece : loop.reduced.numel;
  for (std::int64_t first = BlockIndex() * per_block; first < loop.kept.numel;
       first += GridSize() * per_block) {
    const std::int64_t result = first + slot;
    const bool exists = result < loop.kept.numel;
    std::int64_t offsets[2] = {0, 0};
    typename Reducer::Accumulator total = reducer.Widen(reducer.Empty());
    if (exists) {
      loop.kept.Locate(result, offsets);
      total = loop.columns ? ReduceLane<1, T>(reducer, loop, offsets[0], begin, end, lane)
                           : ReduceLane<kTaken, T>(reducer, loop, offsets[0], begin, end, lane);
    }
    total = CombineLanes(reducer, total, lane, loop.lanes, distance);
    if (!exists || lane != 0) continue;
    if (loop.pieces > 1) {
      Store(partial + BlockIndexY() * loop.kept.numel + result, total);
    } else {
      Store(static_cast<typename Reducer::Out*>(loop.out) + offsets[1], reducer.Finish(total));
    }
  }
}

/// As ReduceKernel for columns, a vector of which is a lane's. Totals are in shared memory, which
/// leaves the registers to vectors under way: blocks enough of these keep the memory busy.
template <typename T, typename Reducer>
SIMT_KERNEL void ReduceWideColumnsKernel(ReduceLoop loop, Reducer reducer,
                                         typename Reducer::Accumulator* partial) {
  using Accumulator = typename Reducer::Accumulator;
  constexpr int N = kMaxVectorWidth<T>;
  constexpr int kBatch = 8;
  static_assert(kChain % kBatch == 0);
  SIMT_SHARED(Accumulator, totals, kReduceBlock * N);  // [N][lanes][slots]
  const int self = ThreadIndex();
  const int lanes = loop.lanes;
  const int per_block = kReduceBlock / lanes;
  const int slot = self % per_block;
  const int lane = self / per_block;
  const std::int64_t begin = BlockIndexY() * loop.piece;
  const std::int64_t end =
      begin + loop.piece < loop.reduced.numel ? begin + loop.piece : loop.reduced.numel;
  const std::int64_t step = lanes * loop.reduced.strides[0][0];
  for (std::int64_t first = BlockIndex() * per_block; first * N < loop.kept.numel;
       first += GridSize() * per_block) {
    for (int k = 0; k < N; ++k)
      totals[k * kReduceBlock + self] = reducer.Widen(reducer.Empty());
    std::int64_t offsets[2] = {0, 0};
    const bool exists = (first + slot) * N < loop.kept.numel;
    if (exists) loop.kept.Locate((first + slot) * N, offsets);
    const T* x =
        static_cast<const T*>(loop.x) + offsets[0] + (begin + lane) * loop.reduced.strides[0][0];
    const int chain_rows = kChain * lanes;
    for (std::int64_t i = begin + lane; exists && i < end; i += chain_rows) {
      typename Reducer::Partial chain[N];
      for (int k = 0; k < N; ++k)
        chain[k] = reducer.Empty();
      const int left = end - i < chain_rows ? static_cast<int>(end - i) : chain_rows;
      for (int taken = 0; taken < left; taken += kBatch * lanes) {
        // Each row's uses are under a condition of their own, which keeps all reads before them.
        Packed<T, N> rows[kBatch];
        SIMT_UNROLL
        for (int j = 0; j < kBatch; ++j) {
          if (taken + j * lanes < left) rows[j] = Packed<T, N>::Of(x + j * step);
        }
        SIMT_UNROLL
        for (int j = 0; j < kBatch; ++j) {
          if (taken + j * lanes >= left) continue;
          const Vec<T, N> values = rows[j].Unpack();
          for (int k = 0; k < N; ++k)
            chain[k] = reducer.Take(chain[k], values[k], i + taken + j * lanes);
        }
        x += kBatch * step;
      }
      for (int k = 0; k < N; ++k) {
        const Accumulator total = totals[k * kReduceBlock + self];
        totals[k * kReduceBlock + self] = reducer.Combine(total, reducer.Widen(chain[k]));
      }
    }
    for (int half = lanes / 2; half > 0; half /= 2) {
      SyncBlock();
      for (int k = 0; lane < half && k < N; ++k) {
        const int at = k * kReduceBlock + self;
        const Accumulator total = totals[at];
        const Accumulator other = totals[at + half * per_block];
        totals[at] = reducer.Combine(total, other);
      }
    }
    SyncBlock();
    for (int column = self; column < per_block * N; column += kReduceBlock) {
      const std::int64_t result = first * N + column;
      if (result >= loop.kept.numel) continue;
      const Accumulator total = totals[column % N * kReduceBlock + column / N];
      if (loop.pieces > 1) {
        Store(partial + BlockIndexY() * loop.kept.numel + result, total);
      } else {
        loop.kept.Locate(result, offsets);
        Store(static_cast<typename Reducer::Out*>(loop.out) + offsets[1], reducer.Finish(total));
      }
    }
    SyncBlock();
  }
}

/// Combines the pieces of each result with kGroupWidth lanes.
template <typename Reducer>
SIMT_KERNEL void CombinePiecesKernel(ReduceLoop loop, Reducer reducer,
                                     const typename Reducer::Accumulator* partial) {
  constexpr int kLanes = kGroupWidth;
  const int per_block = BlockSize() / kLanes;
  const int lane = ThreadIndex() % kLanes;
  for (std::int64_t first = BlockIndex() * per_block; first < loop.kept.numel;
       first += GridSize() * per_block) {
    const std::int64_t result = first + ThreadIndex() / kLanes;
    const bool exists = result < loop.kept.numel;
    typename Reducer::Accumulator total = reducer.Widen(reducer.Empty());
    for (std::int64_t piece = lane; exists && piece < loop.pieces; piece += kLanes)
      total = reducer.Combine(total, Load(partial + piece * loop.kept.numel + result));
    total = CombineLanes(reducer, total, lane, kLanes, 1);
    if (!exists || lane != 0) continue;
    std::int64_t offsets[2];
    loop.kept.Locate(result, offsets);
    Store(static_cast<typename Reducer::Out*>(loop.out) + offsets[1], reducer.Finish(total));
  }
}

}  // namespace detail

/// Runs a reduction of elements T, planned with the reducer's kMayBeWide.
template <typename T, typename Reducer>
void LaunchReduction(const Context& context, const ReduceLoop& loop, const Reducer& reducer) {
  using Accumulator = typename Reducer::Accumulator;
  const auto blocks_for = [&](std::int64_t per_block) {
    return Rows((loop.kept.numel + per_block - 1) / per_block, kReduceBlock);
  };
  Geometry geometry = blocks_for(static_cast<std::int64_t>(loop.results_per_block()) * loop.wide);
  geometry.grid_y = loop.pieces;
  auto* kernel = &detail::ReduceKernel<T, Reducer>;
  if constexpr (Reducer::kMayBeWide) {
    if (loop.wide > 1) kernel = &detail::ReduceWideColumnsKernel<T, Reducer>;
  }
  if (loop.pieces == 1) {
    Launch(context, geometry, kernel, loop, reducer, static_cast<Accumulator*>(nullptr));
    return;
  }
  const Tensor memory = Tensor::Empty(
      {loop.pieces * loop.kept.numel * static_cast<std::int64_t>(sizeof(Accumulator))},
      DataType::kUInt8, context.device);
  auto* const partial = static_cast<Accumulator*>(memory.raw_data());
  Launch(context, geometry, kernel, loop, reducer, partial);
  Launch(context, blocks_for(kReduceBlock / kGroupWidth), &detail::CombinePiecesKernel<Reducer>,
         loop, reducer, static_cast<const Accumulator*>(partial));
}

}  // namespace infini_train::simt
