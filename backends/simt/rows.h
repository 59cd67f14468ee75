#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "backends/simt/dialect.h"

/// Kernels over the rows of a matrix: who works on which row, and how a row is read.
namespace infini_train::simt {

/// A group of 32 lanes for each row: for short rows. Rows that one team does not reach in the first
/// round follow at distance Count().
struct GroupTeam {
  static constexpr int kLanes = 32;

  SIMT_DEVICE static int Lane() { return ThreadIndex() % kLanes; }
  SIMT_DEVICE static int Size() { return kLanes; }
  SIMT_DEVICE static int InBlock() { return ThreadIndex() / kLanes; }
  SIMT_DEVICE static int PerBlock() { return BlockSize() / kLanes; }
  SIMT_DEVICE static std::int64_t First() { return BlockIndex() * PerBlock() + InBlock(); }
  SIMT_DEVICE static std::int64_t Count() { return GridSize() * PerBlock(); }

  /// The fold of all lanes' values, in every lane. Every lane of the team must call it.
  template <typename T, typename Op>
  SIMT_DEVICE static T Reduce(T value, Op op, T, Place place = Place::current()) {
    return ReduceGroup<kLanes>(value, op, place);
  }
};

/// A block for each row: for long rows.
struct BlockTeam {
  SIMT_DEVICE static int Lane() { return ThreadIndex(); }
  SIMT_DEVICE static int Size() { return BlockSize(); }
  SIMT_DEVICE static int InBlock() { return 0; }
  SIMT_DEVICE static int PerBlock() { return 1; }
  SIMT_DEVICE static std::int64_t First() { return BlockIndex(); }
  SIMT_DEVICE static std::int64_t Count() { return GridSize(); }

  template <typename T, typename Op>
  SIMT_DEVICE static T Reduce(T value, Op op, T identity, Place place = Place::current()) {
    return ReduceBlock(value, op, identity, place);
  }
};

/// Calls `body.template Visit<M>(i)` for the elements [i, i + M) of a row that this lane owns; M is
/// N where the row's address allows it, and 1 before the first and after the last vector. Another
/// array whose rows start at the same distance from a vector's boundary may be read along.
template <typename Team, int N, typename T, typename Body>
SIMT_DEVICE void WalkRow(const T* row, std::int64_t size, Body& body) {
  const int lane = Team::Lane();
  if constexpr (N == 1) {
    for (std::int64_t i = lane; i < size; i += Team::Size())
      body.template Visit<1>(i);
  } else {
    static_assert(N <= 32, "a team must cover what lies before the first vector in one step");
    const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) / sizeof(T) % N);
    const std::int64_t head = past == 0 ? 0 : (N - past < size ? N - past : size);
    const std::int64_t vectors = (size - head) / N;
    if (lane < head) body.template Visit<1>(lane);
    for (std::int64_t v = lane; v < vectors; v += Team::Size())
      body.template Visit<N>(head + v * N);
    const std::int64_t tail = head + vectors * N + lane;
    if (tail < size) body.template Visit<1>(tail);
  }
}

/// Whether WalkRow may use full vectors over rows of all these arrays, and gains from it.
template <typename T>
bool WalksVectors(std::initializer_list<const void*> arrays, std::int64_t size) {
  const auto past = [](const void* array) {
    return reinterpret_cast<std::uintptr_t>(array) % kMaxVectorBytes;
  };
  return size >= 8 * kMaxVectorWidth<T> &&
         std::all_of(arrays.begin(), arrays.end(),
                     [&](const void* array) { return past(array) == past(*arrays.begin()); });
}

/// Rows up to this size get a group, longer ones a block.
inline constexpr std::int64_t kMaxGroupRow = 1024;

/// A geometry for `teams` GroupTeams at most, four in a block.
inline Geometry GroupRows(std::int64_t teams) {
  constexpr int kTeams = 4;
  return Rows((teams + kTeams - 1) / kTeams, kTeams * GroupTeam::kLanes);
}

/// A geometry for BlockTeams on rows of `steps` loads, several for each lane.
inline Geometry BlockRows(std::int64_t rows, std::int64_t steps) {
  int block = 128;
  while (block < 512 && block * 4 < steps)
    block *= 2;
  return Rows(rows, block);
}

/// Chooses team and vector width for WalkRow over `rows` rows of `size` elements in each of
/// `arrays`, and calls `body(TypeTag<Team>{}, std::integral_constant<int, N>{}, geometry)`.
template <typename T, typename Body>
void DispatchRows(std::int64_t rows, std::int64_t size, std::initializer_list<const void*> arrays,
                  Body&& body) {
  using One = std::integral_constant<int, 1>;
  using Full = std::integral_constant<int, kMaxVectorWidth<T>>;
  const bool vectors = WalksVectors<T>(arrays, size);
  if (size <= kMaxGroupRow) {
    const Geometry geometry = GroupRows(rows);
    vectors ? body(TypeTag<GroupTeam>{}, Full{}, geometry)
            : body(TypeTag<GroupTeam>{}, One{}, geometry);
  } else {
    const Geometry geometry = BlockRows(rows, vectors ? size / Full::value : size);
    vectors ? body(TypeTag<BlockTeam>{}, Full{}, geometry)
            : body(TypeTag<BlockTeam>{}, One{}, geometry);
  }
}

}  // namespace infini_train::simt
