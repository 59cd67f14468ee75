#include "backends/simt/emulator/race_detector.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/simt/emulator/fault.h"
#include "backends/simt/emulator/shared_memory.h"

namespace infini_train::simt::emulator {
namespace {

bool Conflict(AccessKind a, AccessKind b) {
  return a != b || a == AccessKind::kWrite;
}

const char* Verb(AccessKind kind) {
  switch (kind) {
    case AccessKind::kRead:
      return "reads";
    case AccessKind::kWrite:
      return "writes";
    case AccessKind::kAtomic:
      return "atomically updates";
  }
  return "";
}

}  // namespace

void RaceDetector::BeginBlock(int block_size) {
  block_size_ = block_size;
  clocks_.resize(kMaxBlockSize);
  cells_.resize(SharedMemory::MaxBytes() / kCellBytes);
  clocks_are_reset_ = false;
  OnBarrier();
}

void RaceDetector::OnBarrier() {
  ++epoch_;
  if (!clocks_are_reset_) ResetClocks();
}

void RaceDetector::ResetClocks() {
  for (int i = 0; i < block_size_; ++i) {
    clocks_[i].fill(0);
    clocks_[i][i % kMaxWarpSize] = 1;
  }
  clocks_are_reset_ = true;
}

void RaceDetector::OnGroupCall(int first_lane, int width) {
  Clocks joined{};
  for (int i = first_lane; i < first_lane + width; ++i) {
    for (int k = 0; k < kMaxWarpSize; ++k)
      joined[k] = std::max(joined[k], clocks_[i][k]);
  }
  for (int i = first_lane; i < first_lane + width; ++i) {
    clocks_[i] = joined;
    ++clocks_[i][i % kMaxWarpSize];
  }
  clocks_are_reset_ = false;
}

bool RaceDetector::Precedes(const Access& access, int lane_index) const {
  if (access.lane == lane_index) return true;
  if (access.lane / kMaxWarpSize != lane_index / kMaxWarpSize) return false;
  return clocks_[lane_index][access.lane % kMaxWarpSize] >= access.clock;
}

void RaceDetector::OnAccess(AccessKind kind, std::size_t offset, std::size_t bytes,
                            const char* name, const Place& place) {
  Access access{.clock = clocks_[lane.thread][lane.thread % kMaxWarpSize],
                .lane = static_cast<std::int16_t>(lane.thread),
                .kind = kind,
                .mask = 0,
                .place = place};
  const std::size_t end = offset + bytes;
  for (std::size_t cell = offset / kCellBytes; cell * kCellBytes < end; ++cell) {
    access.mask = 0;
    for (std::size_t i = 0; i < kCellBytes; ++i) {
      const std::size_t byte = cell * kCellBytes + i;
      if (byte >= offset && byte < end) access.mask |= static_cast<std::uint8_t>(1u << i);
    }
    OnCell(cells_[cell], access, cell * kCellBytes, name);
  }
}

void RaceDetector::OnCell(Cell& cell, const Access& access, std::size_t offset, const char* name) {
  if (cell.epoch != epoch_) {
    cell.epoch = epoch_;
    cell.accesses.clear();
  }
  for (const Access& other : cell.accesses) {
    if ((other.mask & access.mask) == 0 || !Conflict(other.kind, access.kind) ||
        Precedes(other, access.lane)) {
      continue;
    }
    ThrowFault(fmt::format("race on shared memory '{}' (byte {} of the block's): lane {} {} it at "
                           "{} and lane {} {} it at {} with no barrier between",
                           name, offset, other.lane, Verb(other.kind), ToString(other.place),
                           access.lane, Verb(access.kind), ToString(access.place)),
               access.place);
  }
  // Whatever conflicts later with an access that this one follows and covers, conflicts with this.
  std::erase_if(cell.accesses, [&](const Access& other) {
    return (other.mask & ~access.mask) == 0 &&
           (access.kind == AccessKind::kWrite || access.kind == other.kind) &&
           Precedes(other, access.lane);
  });
  cell.accesses.push_back(access);
}

}  // namespace infini_train::simt::emulator
