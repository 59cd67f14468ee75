#pragma once

/// Launches that begin early. Here each begins when the one before it has ended; what is checked is
/// that its lanes touch nothing too soon.

#include <cstddef>
#include <cstdint>

#include "backends/simt/emulator/language.h"

#include "backends/simt/emulator/lane.h"

namespace infini_train::simt {
namespace emulator {

/// Of lanes with `lane.early`: throws the fault of a read of what no lane of the block has named,
/// and of a write.
void CheckEarlyRead(const void* address, std::size_t bytes, const Place& place);
[[noreturn]] void ThrowEarlyWrite(const Place& place);
void NameEarlyReads(const void* address, std::size_t bytes);
/// At the begin of a block.
void ForgetEarlyReads();

}  // namespace emulator

/// Of a launch that begins early (Geometry::begins_early), every lane waits here for the end of all
/// launches before it on the stream, whose writes it sees behind this. Until then it reads only
/// what ReadsEarly() names, and writes nothing. Returns at once in other launches.
inline void WaitForEarlier() {
  emulator::lane.early = false;
}

/// Lets the next launch on the stream begin, if it begins early, once every block has called this
/// or ended. Before WaitForEarlier(), launches begin beside this one while still others run.
inline void LetLaterBegin() {}

/// A kernel that begins early reads `count` elements from `pointer` on before WaitForEarlier():
/// what no launch before it writes that may still run.
template <typename T>
inline void ReadsEarly(const T* pointer, std::int64_t count) {
  if (emulator::lane.early)
    emulator::NameEarlyReads(pointer, static_cast<std::size_t>(count) * sizeof(T));
}

}  // namespace infini_train::simt
