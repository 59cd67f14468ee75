#pragma once

#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/gemm/groups.h"
#include "kernels/tensor_core.h"

/// Products of the half types by groups of rows, on tensor cores. Blocks stay for as long as there
/// are tiles of the output, and copy the operands of later steps, of the next tile too, while they
/// multiply: copies run a fixed number of steps ahead, through a ring of buffers.
namespace infini_train::cuda::grouped {

// A block computes kTileM by kTileN, kDepth terms of the sums in a step.
inline constexpr int kThreads = 256;
inline constexpr int kTileM = 128;
inline constexpr int kTileN = 256;
inline constexpr int kDepth = 64;
inline constexpr int kMaxStages = 4;

// Elements that are copied and loaded together.
inline constexpr int kChunk = 8;

// Tiles that run at the same time should share operands: rows of tiles are taken so many at a time.
inline constexpr int kPanel = 16;

/// Matrices lie in memory in rows along the depth (the sums' terms) or along the output. Which one
/// is said by kAlongDepth parameters: a along the output means that the groups are of the depth.
/// Rows are aligned to chunks and consist of whole ones.
template <typename T>
struct Problem {
  const T* a;
  const T* b;
  void* out;
  std::int64_t a_row, b_row, out_row;  ///< from row to row
  std::int64_t b_group, out_group;     ///< from group to group, for the one that has groups
  int m, n, k;                         ///< the one that the groups are of is not used
  bool float_out;                      ///< else T
  bool accumulate;
  int stages;  ///< buffers: 2 to kMaxStages
  simt::Groups groups;
};

/// A tile that is computed: where it goes, and how much of it is inside of the output. It takes at
/// least one step, also where there is nothing to sum. No steps: there is no further tile.
struct Tile {
  std::int64_t out;
  int rows, columns, steps;
};

/// The tiles of a block, in their order.
class TileWalk {
 public:
  template <typename T>
  SIMT_DEVICE explicit TileWalk(const Problem<T>& problem)
      : tiles_n_((problem.n + kTileN - 1) / kTileN),
        tile_(static_cast<int>(blockIdx.x)),
        cursor_(problem.groups) {}

  /// Goes to the next tile where the groups are of the output's rows. False: there is none.
  template <typename T>
  SIMT_DEVICE bool NextOfRows(const Problem<T>& problem) {
    // Rows of no group are sums of nothing.
    const std::int64_t end = problem.groups.number + (problem.accumulate ? 0 : 1);
    while (cursor_.group() < end) {
      const int tiles_m = (static_cast<int>(cursor_.count()) + kTileM - 1) / kTileM;
      if (tile_ - first_tile_ < tiles_m * tiles_n_) {
        Place(tile_ - first_tile_, tiles_m);
        return true;
      }
      first_tile_ += tiles_m * tiles_n_;
      cursor_.Next();
    }
    return false;
  }

  /// The same where the groups are of the depth.
  template <typename T>
  SIMT_DEVICE bool NextOfDepth(const Problem<T>& problem) {
    const int tiles_m = (problem.m + kTileM - 1) / kTileM;
    const int tiles = tiles_m * tiles_n_;
    const int group = tile_ / tiles;
    if (group >= problem.groups.number) return false;
    while (cursor_.group() < group)
      cursor_.Next();
    Place(tile_ - group * tiles, tiles_m);
    return true;
  }

  SIMT_DEVICE const simt::GroupCursor& cursor() const { return cursor_; }
  SIMT_DEVICE int row() const { return row_; }
  SIMT_DEVICE int column() const { return column_; }

 private:
  /// Finds the place of a tile of the group, and moves on by the grid.
  SIMT_DEVICE void Place(int tile, int tiles_m) {
    const int panel = tile / (kPanel * tiles_n_);
    const int inside = tile - panel * kPanel * tiles_n_;
    const int height = min(kPanel, tiles_m - panel * kPanel);
    row_ = (panel * kPanel + inside % height) * kTileM;
    column_ = inside / height * kTileN;
    tile_ += static_cast<int>(gridDim.x);
  }

  int tiles_n_;
  int tile_;
  int first_tile_ = 0;
  int row_ = 0, column_ = 0;
  simt::GroupCursor cursor_;
};

// Buffers consist of rows of 64 elements, which are those of global memory or a part of them, and
// chunk c of row r lies at chunk c ^ (r % 8), so that neither copies nor loads of matrices meet in
// a bank.
inline constexpr int kRowBytes = 128;
inline constexpr int kRowElements = kRowBytes / 2;
inline constexpr int kRowChunks = kRowElements / kChunk;
static_assert(kDepth == kRowElements);
inline constexpr int kBufferBytes = (kTileM + kTileN) * kRowBytes;
// Where b begins in a buffer.
inline constexpr int kBufferB = kTileM * kRowBytes;
// Rows along the output are cut into pieces: kDepth of them follow each other, then the next
// pieces.
inline constexpr int kPieceBytes = kDepth * kRowBytes;

/// The copies of one operand to a buffer.
template <int kExtent, bool kAlongDepth>
struct Operand {
  static constexpr int kSourceChunks = (kAlongDepth ? kDepth : kExtent) / kChunk;
  static constexpr int kRows = kAlongDepth ? kExtent : kDepth;
  static constexpr int kRowsPerPass = kThreads / kSourceChunks;
  static constexpr int kPasses = kRows / kRowsPerPass;
  static_assert(kRowsPerPass % 8 == 0 && kPasses * kRowsPerPass == kRows);

  /// Where the lane's first copy goes, from the operand's begin in the buffer.
  SIMT_DEVICE static std::uint32_t CopyOffset() {
    const int piece = Chunk() / kRowChunks, chunk = Chunk() % kRowChunks;
    return piece * kPieceBytes + Row() * kRowBytes + (chunk ^ (Row() % 8)) * kChunk * 2;
  }
  /// Where it comes from, from the tile's begin.
  SIMT_DEVICE static std::int64_t SourceOffset(std::int64_t row_stride) {
    return Row() * row_stride + Chunk() * kChunk;
  }

  /// Starts kCount of the lane's copies, from number `first` on, of a tile that is inside of the
  /// matrix for `extent` by `depth` elements.
  template <int kCount, typename T>
  SIMT_DEVICE static void Copy(std::uint32_t to, const T* from, int first, std::int64_t row_stride,
                               int extent, int depth) {
    const int rows = kAlongDepth ? extent : depth;
    const bool chunk_inside = Chunk() * kChunk < (kAlongDepth ? depth : extent);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int pass = first + i;
      CopyAsync(to + pass * kRowsPerPass * kRowBytes, from + pass * kRowsPerPass * row_stride,
                chunk_inside && Row() + pass * kRowsPerPass < rows);
    }
  }

 private:
  SIMT_DEVICE static int Row() {
    return static_cast<int>(threadIdx.x) / kSourceChunks;
  }
  SIMT_DEVICE static int Chunk() {
    return static_cast<int>(threadIdx.x) % kSourceChunks;
  }
};

/// Starts the copies of a block's steps, one after the other.
template <typename T, bool kAAlongDepth, bool kBAlongDepth>
class Producer {
 public:
  using A = Operand<kTileM, kAAlongDepth>;
  using B = Operand<kTileN, kBAlongDepth>;
  static constexpr int kParts = 3;
  static constexpr int kCopies = A::kPasses;
  static_assert(B::kPasses == 2 * kCopies);
  static constexpr int kRing = 8;
  static_assert(kRing > kMaxStages + 1);

  SIMT_DEVICE Producer(const Problem<T>& problem, std::uint32_t buffers, Tile* ring)
      : problem_(problem), walk_(problem), ring_(ring), buffers_(buffers) {}

  /// One part of the next step's copies, 0 to kParts - 1 in turn; nothing behind the last step.
  SIMT_DEVICE void Start(int part) {
    if (part == 0 && steps_ == 0 && !ended_) Begin();
    if (steps_ > 0) {
      const std::uint32_t to = buffers_ + stage_ * kBufferBytes;
      if (part == 0) {
        A::template Copy<kCopies>(to + A::CopyOffset(), a_, 0, problem_.a_row, rows_, depth_);
      } else {
        B::template Copy<kCopies>(to + kBufferB + B::CopyOffset(), b_, (part - 1) * kCopies,
                                  problem_.b_row, columns_, depth_);
      }
      if (part == kParts - 1) {
        a_ += kAAlongDepth ? kDepth : kDepth * problem_.a_row;
        b_ += kBAlongDepth ? kDepth : kDepth * problem_.b_row;
        depth_ -= kDepth;
        --steps_;
      }
    }
    if (part == kParts - 1) {
      simt::CommitCopies();
      stage_ = stage_ + 1 == problem_.stages ? 0 : stage_ + 1;
    }
  }

 private:
  /// Goes to the next tile, and says in the ring which it is.
  SIMT_DEVICE void Begin() {
    Tile tile{};
    ended_ = !(kAAlongDepth ? walk_.NextOfRows(problem_) : walk_.NextOfDepth(problem_));
    if (!ended_) {
      const simt::GroupCursor& group = walk_.cursor();
      const int row = walk_.row(), column = walk_.column();
      columns_ = problem_.n - column;
      if constexpr (kAAlongDepth) {
        const bool is_group = group.group() < problem_.groups.number;
        rows_ = static_cast<int>(group.count()) - row;
        depth_ = is_group ? problem_.k : 0;
        a_ = problem_.a + (group.first() + row) * problem_.a_row;
        b_ = problem_.b + (is_group ? group.group() * problem_.b_group : 0) +
             (kBAlongDepth ? column * problem_.b_row : column);
        tile.out = (group.first() + row) * problem_.out_row + column;
      } else {
        rows_ = problem_.m - row;
        depth_ = static_cast<int>(group.count());
        a_ = problem_.a + group.first() * problem_.a_row + row;
        b_ = problem_.b + group.first() * problem_.b_row + column;
        tile.out = group.group() * problem_.out_group + row * problem_.out_row + column;
      }
      a_ += A::SourceOffset(problem_.a_row);
      b_ += B::SourceOffset(problem_.b_row);
      steps_ = max(1, (depth_ + kDepth - 1) / kDepth);
      tile.rows = rows_;
      tile.columns = columns_;
      tile.steps = steps_;
    }
    if (threadIdx.x == 0) ring_[tiles_ % kRing] = tile;
    ++tiles_;
  }

  const Problem<T>& problem_;
  TileWalk walk_;
  Tile* ring_;
  std::uint32_t buffers_;
  const T* a_ = nullptr;
  const T* b_ = nullptr;
  int rows_ = 0, columns_ = 0, depth_ = 0;
  int steps_ = 0;
  int stage_ = 0;
  int tiles_ = 0;
  bool ended_ = false;
};

/// A warp's sums: kM by kN of those of MatrixProducts, of 16 by 8 elements each.
template <int kM, int kN>
using Sums = float[kM][kN][4];

/// Lane t of each four has words j = 0 to 3 of row t of a matrix; makes them those of column t.
SIMT_DEVICE inline void TransposeAmongFour(std::uint32_t (&words)[4]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = (t & distance) != 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((j & distance) != 0) continue;
      std::uint32_t& low = words[j];
      std::uint32_t& high = words[j + distance];
      const std::uint32_t received = __shfl_xor_sync(0xFFFFFFFFu, upper ? low : high, distance);
      if (upper) {
        low = received;
      } else {
        high = received;
      }
    }
  }
}

/// Writes a warp's sums to the tile; `row` and `column`: the warp's place in it.
template <typename T, int kM, int kN>
SIMT_DEVICE void Write(const Problem<T>& problem, const Tile& tile, const Sums<kM, kN>& sums,
                       int row, int column) {
  static_assert(kN % 4 == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int t = lane % 4;
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + i * 16 + half * 8 + lane / 4;
      const bool row_inside = r < tile.rows;
      const std::int64_t at = tile.out + r * problem.out_row + column;
      if (problem.float_out) {
        float* to = static_cast<float*>(problem.out) + at + 2 * t;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          if (!row_inside || column + j * 8 >= tile.columns) continue;
          float first = sums[i][j][2 * half], second = sums[i][j][2 * half + 1];
          if (problem.accumulate) {
            const auto former = simt::Load<2>(static_cast<const float*>(to + j * 8));
            first += former[0];
            second += former[1];
          }
          StorePair(to + j * 8, first, second);
        }
      } else if (problem.accumulate) {
        T* to = static_cast<T*>(problem.out) + at + 2 * t;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          if (!row_inside || column + j * 8 >= tile.columns) continue;
          simt::Vec<T, 2> values = simt::Load<2>(static_cast<const T*>(to + j * 8));
#pragma unroll
          for (int x = 0; x < 2; ++x) {
            values[x] = simt::FromCompute<T>(simt::ToCompute(values[x]) + sums[i][j][2 * half + x]);
          }
          simt::Store(to + j * 8, values);
        }
      } else {
        // Four lanes have a row's pairs of four groups of 8 columns: each takes one of the groups.
        T* to = static_cast<T*>(problem.out) + at + t * 8;
#pragma unroll
        for (int j = 0; j < kN; j += 4) {
          std::uint32_t words[4];
#pragma unroll
          for (int x = 0; x < 4; ++x)
            words[x] = simt::PackHalves<T>(sums[i][j + x][2 * half], sums[i][j + x][2 * half + 1]);
          TransposeAmongFour(words);
          if (!row_inside || column + (j + t) * 8 >= tile.columns) continue;
          *reinterpret_cast<uint4*>(to + j * 8) = {words[0], words[1], words[2], words[3]};
        }
      }
    }
  }
}

}  // namespace infini_train::cuda::grouped
