// What kernels call: the emulator's functions of a lane.
#define __MACA__ 1
#include "mcr/device_language.h"

#include "backends/simt/emulator/fault.h"
#include "backends/simt/emulator/platform.h"

namespace {

namespace emulator = infini_train::simt::emulator;
using infini_train::simt::Place;

static_assert(offsetof(__mcLane, thread) == offsetof(emulator::LaneView, thread) &&
              offsetof(__mcLane, block_size) == offsetof(emulator::LaneView, block_size) &&
              offsetof(__mcLane, block) == offsetof(emulator::LaneView, block) &&
              offsetof(__mcLane, grid) == offsetof(emulator::LaneView, grid));

}  // namespace

#define MACA_API extern "C" __attribute__((visibility("default")))

MACA_API const __mcLane* __mcCurrentLane() noexcept {
  return reinterpret_cast<const __mcLane*>(&emulator::lane);
}

MACA_API void __mcSyncBlock() {
  infini_train::simt::SyncBlock();
}

MACA_API void __mcSyncGroup(int width) {
  emulator::CallGroup({.kind = emulator::GroupCallKind::kSync, .width = width}, Place::current());
}

MACA_API void __mcShuffle(int width, int source, const void* input, void* output,
                          std::size_t bytes) {
  emulator::CallGroup({.kind = emulator::GroupCallKind::kShuffle,
                       .width = width,
                       .input = input,
                       .output = output,
                       .size = bytes,
                       .source = source},
                      Place::current());
}

MACA_API unsigned long long __mcBallot(int width, bool predicate) {
  std::uint64_t votes = 0;
  emulator::CallGroup({.kind = emulator::GroupCallKind::kBallot,
                       .width = width,
                       .input = &predicate,
                       .output = &votes},
                      Place::current());
  return votes;
}

MACA_API void __mcFault(const char* what) {
  emulator::ThrowFault(what, Place::current());
}

MACA_API void* __mcStaticShared(const char* tag, const char* name, std::size_t bytes) {
  return emulator::StaticShared(tag, name, bytes, Place::current());
}

MACA_API void* __mcDynamicShared() {
  return emulator::DynamicShared().data;
}
