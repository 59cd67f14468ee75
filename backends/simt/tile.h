#pragma once

#include <cstdint>

#include "backends/simt/dialect.h"

namespace infini_train::simt {

/// Moves a tile of a matrix in global memory to shared memory, for a product that sums over the
/// matrix' "depth": element (e, d) of the tile goes to shared element d * kStride + e, converted to
/// the compute type; what lies outside of the matrix becomes 0. In two steps, so that loads are
/// under way while the lanes still work on the tile before. All kThreads lanes of a block call
/// both.
template <typename S, int kThreads, int kExtent, int kDepth, int kStride>
class TileLoader {
 public:
  using C = ComputeType<S>;

  /// Reads the tile that starts at `from`, of which `extent` by `depth` elements are inside of the
  /// matrix. Neighbouring lanes read along depth or along extent; `vector` promises that the stride
  /// along that direction is 1 and that every kMaxVectorWidth<C> elements from `from` are aligned.
  SIMT_DEVICE void Fetch(const S* from, std::int64_t extent_stride, std::int64_t depth_stride,
                         bool along_depth, bool vector, std::int64_t extent, std::int64_t depth) {
    SIMT_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const Place place = PlaceOf(i, along_depth);
      const std::int64_t inside = along_depth ? (place.e < extent ? depth - place.d : 0)
                                              : (place.d < depth ? extent - place.e : 0);
      const std::int64_t stride = along_depth ? depth_stride : extent_stride;
      const S* piece = from + place.e * extent_stride + place.d * depth_stride;
      if (vector && inside >= kVector) {
        pieces_[i] = Load<kVector>(piece);
      } else {
        SIMT_UNROLL
        for (int x = 0; x < kVector; ++x)
          pieces_[i][x] = x < inside ? Load(piece + x * stride) : FromCompute<S>(C(0));
      }
    }
  }

  /// Writes to shared memory what the last Fetch, along the same direction, has read.
  SIMT_DEVICE void Put(Shared<C> to, bool along_depth) const {
    SIMT_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const Place place = PlaceOf(i, along_depth);
      Vec<C, kVector> values;
      SIMT_UNROLL
      for (int x = 0; x < kVector; ++x)
        values[x] = ToCompute(pieces_[i][x]);
      if (along_depth) {
        SIMT_UNROLL
        for (int x = 0; x < kVector; ++x)
          to[(place.d + x) * kStride + place.e] = values[x];
      } else {
        to.Store(place.d * kStride + place.e, values);
      }
    }
  }

 private:
  static constexpr int kVector = kMaxVectorWidth<C>;
  static constexpr int kPieces = kExtent * kDepth / (kVector * kThreads);
  static_assert(kPieces * kVector * kThreads == kExtent * kDepth && kStride % kVector == 0 &&
                kExtent % kVector == 0 && kDepth % kVector == 0);

  struct Place {
    int e, d;
  };

  SIMT_DEVICE static Place PlaceOf(int i, bool along_depth) {
    const int number = i * kThreads + ThreadIndex();
    if (along_depth) {
      constexpr int kPerRow = kDepth / kVector;
      return {number / kPerRow, number % kPerRow * kVector};
    }
    constexpr int kPerRow = kExtent / kVector;
    return {number % kPerRow * kVector, number / kPerRow};
  }

  Vec<S, kVector> pieces_[kPieces] = {};
};

/// Loads kCount numbers of a lane: vectors that lie `kGroupStride` apart, the first at `at`.
template <int kCount, int kGroupStride, typename C>
SIMT_DEVICE void LoadFragment(C (&fragment)[kCount], Shared<C> from, int at) {
  constexpr int kWidth = kCount < kMaxVectorWidth<C> ? kCount : kMaxVectorWidth<C>;
  SIMT_UNROLL
  for (int group = 0; group < kCount / kWidth; ++group) {
    const Vec<C, kWidth> values = from.template Load<kWidth>(at + group * kGroupStride);
    SIMT_UNROLL
    for (int x = 0; x < kWidth; ++x)
      fragment[group * kWidth + x] = values[x];
  }
}

/// sums [kM][kN] += the product of two tiles in shared memory that lie [depth][stride]: of a the
/// fragment at a_at, of b that at b_at.
template <int kDepth, int kGroupM, int kGroupN, int kStrideA, int kStrideB, typename C, int kM,
          int kN>
SIMT_DEVICE void MultiplyTiles(C (&sums)[kM][kN], Shared<C> a, int a_at, Shared<C> b, int b_at) {
  for (int d = 0; d < kDepth; ++d) {
    C a_values[kM];
    C b_values[kN];
    LoadFragment<kM, kGroupM>(a_values, a, a_at + d * kStrideA);
    LoadFragment<kN, kGroupN>(b_values, b, b_at + d * kStrideB);
    SIMT_UNROLL
    for (int i = 0; i < kM; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < kN; ++j)
        sums[i][j] += a_values[i] * b_values[j];
    }
  }
}

}  // namespace infini_train::simt
