#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backends/simt/emulator/race_detector.h"
#include "backends/simt/emulator/shared.h"

namespace infini_train::simt::emulator {

/// The shared memory of a block. At the start of each block all of it holds NaN patterns.
class SharedMemory {
 public:
  SharedMemory();

  /// What a block has, static and dynamic.
  static std::size_t MaxBytes();

  /// Forgets the arrays of the last launch and sets the dynamic part.
  void BeginLaunch(std::size_t dynamic_bytes);
  void BeginBlock();

  std::byte* Static(const char* tag, const char* name, std::size_t bytes, const Place& place);
  DynamicSharedMemory Dynamic() { return {data_.get(), dynamic_bytes_}; }

  std::size_t OffsetOf(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - data_.get());
  }
  RaceDetector& races() { return races_; }

 private:
  struct FreeBytes {
    void operator()(std::byte* bytes) const;
  };
  struct Array {
    const char* tag;
    std::byte* data;
  };

  std::unique_ptr<std::byte[], FreeBytes> data_;
  std::size_t dynamic_bytes_ = 0;
  std::size_t used_ = 0;
  std::vector<Array> arrays_;
  RaceDetector races_;
};

}  // namespace infini_train::simt::emulator
