#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/simt/emulator/language.h"

#include "backends/simt/emulator/lane.h"

namespace infini_train::simt {
namespace emulator {

enum class GroupCallKind : std::uint8_t { kSync, kShuffle, kBallot };

/// One lane's part in a call that its logical group makes together.
struct GroupCall {
  GroupCallKind kind;
  int width;
  const void* input = nullptr;  ///< kShuffle: the lane's value; kBallot: its bool
  void* output = nullptr;       ///< kShuffle: a value; kBallot: a std::uint64_t
  std::size_t size = 0;         ///< kShuffle: bytes of a value
  int source = 0;               ///< kShuffle: lane of the group whose value the lane gets
};

/// Returns when all lanes of the group have made the call.
void CallGroup(const GroupCall& call, const Place& place);

}  // namespace emulator

/// Waits for all lanes of the block.
void SyncBlock(Place place = Place::current());

/// Waits for all lanes of the logical group.
template <int kWidth>
void SyncGroup(Place place = Place::current()) {
  emulator::CallGroup({.kind = emulator::GroupCallKind::kSync, .width = kWidth}, place);
}

/// The value of lane `source_lane` of the logical group, modulo kWidth.
template <int kWidth, typename T>
T Shuffle(T value, int source_lane, Place place = Place::current()) {
  static_assert(kWidth > 0 && kWidth <= kMaxWarpSize && (kWidth & (kWidth - 1)) == 0,
                "the width of a group is a power of two up to 64");
  static_assert(std::is_trivially_copyable_v<T>);
  T result = value;
  emulator::CallGroup({.kind = emulator::GroupCallKind::kShuffle,
                       .width = kWidth,
                       .input = &value,
                       .output = &result,
                       .size = sizeof(T),
                       .source = source_lane & (kWidth - 1)},
                      place);
  return result;
}

/// The value of the lane whose number in the group differs in the bits of `lane_mask`.
template <int kWidth, typename T>
T ShuffleXor(T value, int lane_mask, Place place = Place::current()) {
  return Shuffle<kWidth>(value, ThreadIndex() ^ lane_mask, place);
}

/// The value of the lane `delta` above; the lane's own beyond the group's end.
template <int kWidth, typename T>
T ShuffleDown(T value, int delta, Place place = Place::current()) {
  const int lane = ThreadIndex() & (kWidth - 1);
  return Shuffle<kWidth>(value, lane + delta < kWidth ? lane + delta : lane, place);
}

/// The value of the lane `delta` below; the lane's own beyond the group's start.
template <int kWidth, typename T>
T ShuffleUp(T value, int delta, Place place = Place::current()) {
  const int lane = ThreadIndex() & (kWidth - 1);
  return Shuffle<kWidth>(value, lane >= delta ? lane - delta : lane, place);
}

/// Bit i: whether the predicate holds in lane i of the logical group.
template <int kWidth>
std::uint64_t Ballot(bool predicate, Place place = Place::current()) {
  static_assert(kWidth > 0 && kWidth <= kMaxWarpSize && (kWidth & (kWidth - 1)) == 0,
                "the width of a group is a power of two up to 64");
  std::uint64_t votes = 0;
  emulator::CallGroup({.kind = emulator::GroupCallKind::kBallot,
                       .width = kWidth,
                       .input = &predicate,
                       .output = &votes},
                      place);
  return votes;
}

template <int kWidth>
bool Any(bool predicate, Place place = Place::current()) {
  return Ballot<kWidth>(predicate, place) != 0;
}

template <int kWidth>
bool All(bool predicate, Place place = Place::current()) {
  return Ballot<kWidth>(predicate, place) == ~std::uint64_t{0} >> (64 - kWidth);
}

}  // namespace infini_train::simt
