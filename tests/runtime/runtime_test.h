#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "tests/common/device_test.h"

namespace infini_train::test {

using Bytes = std::vector<std::uint8_t>;

/// Sizes that end inside a word, at and around a page, and beyond what fits a staging buffer.
inline constexpr std::size_t kByteSizes[] = {
    1, 3, 17, 255, 256, 4095, 4096, 4097, (1u << 20) + 13, (9u << 20) + 1};

/// Bytes that differ from their neighbours and from those of another seed.
inline Bytes Pattern(std::size_t count, std::uint32_t seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::uint8_t>((i * 131 + i / 251 + seed * 29) & 0xFF);
  return bytes;
}

/// Tests of a provider's DeviceGuardImpl itself, on the device under test.
class RuntimeTest : public DeviceTest {
 protected:
  static DeviceGuardImpl& impl() { return GetDeviceGuardImpl(device().type()); }

  /// Device memory as long as its scope, on the device that is current.
  class Memory {
   public:
    explicit Memory(std::size_t bytes)
        : bytes_(bytes), pointer_(static_cast<std::uint8_t*>(impl().Allocate(bytes))) {
      EXPECT_NE(pointer_, nullptr) << bytes << " bytes";
    }
    explicit Memory(const Bytes& content) : Memory(content.size()) {
      impl().CopyAsync(pointer_, content.data(), bytes_, CopyKind::kHostToDevice, nullptr);
      impl().SynchronizeStream(nullptr);
    }
    ~Memory() { impl().Free(pointer_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::uint8_t* get() const { return pointer_; }
    std::size_t bytes() const { return bytes_; }

    /// The content after all work on the default stream.
    Bytes Read() const { return Read(nullptr); }
    /// The content after all work on a stream.
    Bytes Read(StreamHandle stream) const {
      Bytes content(bytes_);
      impl().CopyAsync(content.data(), pointer_, bytes_, CopyKind::kDeviceToHost, stream);
      impl().SynchronizeStream(stream);
      return content;
    }

   private:
    std::size_t bytes_;
    std::uint8_t* pointer_;
  };

  class Stream {
   public:
    explicit Stream(int priority = 0) : handle_(impl().CreateStream(priority)) {}
    ~Stream() { impl().DestroyStream(handle_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    StreamHandle get() const { return handle_; }

   private:
    StreamHandle handle_;
  };

  class Event {
   public:
    Event() : handle_(impl().CreateEvent()) {}
    ~Event() { impl().DestroyEvent(handle_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    EventHandle get() const { return handle_; }

   private:
    EventHandle handle_;
  };

  /// Work that takes a while: the last of many fills leaves `value`.
  static void FillSlowly(const Memory& memory, int value, StreamHandle stream) {
    for (int i = 40; i >= 0; --i)
      impl().FillBytesAsync(memory.get(), value + i, memory.bytes(), stream);
  }
};

}  // namespace infini_train::test
