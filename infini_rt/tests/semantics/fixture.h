#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <infini/rt.h>

/// The suite of CUDA semantics. Each test runs on every backend of the build; what a backend lacks
/// as a whole is skipped by `REQUIRE_FEATURE`, and must then answer `kErrorNotSupported`.
namespace infini::rt::runtime {

#define EXPECT_OK(call) EXPECT_EQ(call, kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, kSuccess)

class Semantics : public testing::TestWithParam<Device::Type> {
 protected:
  void SetUp() override;
  void TearDown() override;

  bool Has(Feature feature) const { return Supports(GetParam(), feature); }
};

#define REQUIRE_FEATURE(feature) \
  if (!Has(feature)) GTEST_SKIP() << "the backend lacks " #feature

std::string TypeName(const testing::TestParamInfo<Device::Type>& info);

#define INSTANTIATE_SEMANTICS(suite) \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(kEnabledDeviceTypes), TypeName)

/// Device memory for the duration of a test.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t size);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* get() const { return ptr_; }
  std::byte* bytes() const { return static_cast<std::byte*>(ptr_); }
  std::size_t size() const { return size_; }
  /// The content, after waiting for the whole device.
  std::vector<std::uint8_t> Read() const;

 private:
  void* ptr_ = nullptr;
  std::size_t size_;
};

/// Page-locked host memory for the duration of a test.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t size);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  void* get() const { return ptr_; }
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(ptr_); }
  std::size_t size() const { return size_; }

 private:
  void* ptr_ = nullptr;
  std::size_t size_;
};

class TestStream {
 public:
  TestStream();
  explicit TestStream(unsigned int flags);
  ~TestStream();
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator Stream() const { return stream_; }
  /// The stream was destroyed by the test itself.
  void Forget() { stream_ = nullptr; }

 private:
  Stream stream_ = nullptr;
};

class TestEvent {
 public:
  TestEvent();
  explicit TestEvent(unsigned int flags);
  ~TestEvent();
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator Event() const { return event_; }
  void Forget() { event_ = nullptr; }

 private:
  Event event_ = nullptr;
};

/// Keeps a stream busy. With host functions the stream stays busy until `Open`, exactly; without
/// them it gets long fills. While a gate is closed, other streams of the test must not use host
/// functions, and nothing that synchronises the device may be called.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Enqueues the obstacle.
  void Close(Stream stream);
  void Open() { open_.store(true); }
  /// Whether the stream is certain to be busy until `Open`.
  bool exact() const { return exact_; }

 private:
  static void Wait(void* gate);

  bool exact_;
  std::atomic<bool> open_{false};
  std::atomic<int> waiting_{0};
  DeviceBuffer filler_;
};

/// Whether all bytes have one value.
bool AllEqual(const std::vector<std::uint8_t>& bytes, int value);
bool AllEqual(const PinnedBuffer& buffer, int value);

}  // namespace infini::rt::runtime
