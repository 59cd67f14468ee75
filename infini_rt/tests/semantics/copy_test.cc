#include <numeric>
#include <vector>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

class CopySemantics : public Semantics {};

TEST_P(CopySemantics, CountZeroTouchesNothing) {
  DeviceBuffer buffer(64);
  EXPECT_OK(Memcpy(nullptr, buffer.get(), 0, kMemcpyDeviceToHost));
  EXPECT_OK(Memcpy(nullptr, nullptr, 0, kMemcpyHostToDevice));
  EXPECT_OK(Memset(nullptr, 0, 0));
  EXPECT_OK(MemcpyAsync(nullptr, buffer.get(), 0, kMemcpyDeviceToHost, nullptr));
  EXPECT_OK(MemsetAsync(nullptr, 0, 0, nullptr));
}

TEST_P(CopySemantics, NullPointersAreInvalidValues) {
  DeviceBuffer buffer(64);
  TestStream stream;
  EXPECT_EQ(Memcpy(nullptr, buffer.get(), 4, kMemcpyDeviceToHost), kErrorInvalidValue);
  EXPECT_EQ(Memcpy(buffer.get(), nullptr, 4, kMemcpyHostToDevice), kErrorInvalidValue);
  EXPECT_EQ(Memset(nullptr, 0, 4), kErrorInvalidValue);
  EXPECT_EQ(MemsetAsync(nullptr, 0, 4, stream), kErrorInvalidValue);
}

TEST_P(CopySemantics, UnknownDirectionIsRefused) {
  DeviceBuffer buffer(64);
  char host[64];
  for (int kind : {-1, 5}) {
    EXPECT_EQ(Memcpy(host, buffer.get(), 4, static_cast<MemcpyKind>(kind)),
              kErrorInvalidMemcpyDirection);
    EXPECT_EQ(GetLastError(), kErrorInvalidMemcpyDirection);
  }
}

TEST_P(CopySemantics, OverrunsAndHostTargetsAreInvalidValues) {
  DeviceBuffer buffer(1024);
  std::vector<char> host(4096);
  EXPECT_EQ(Memcpy(host.data(), buffer.get(), 4, kMemcpyHostToDevice), kErrorInvalidValue);
  EXPECT_EQ(Memset(host.data(), 0, 4), kErrorInvalidValue);
  // CUDA knows whole mappings only, so the overrun has to be a large one to be certain.
  DeviceBuffer small(1024);
  std::size_t huge = std::size_t{1} << 40;
  EXPECT_EQ(Memset(small.get(), 0, huge), kErrorInvalidValue);
}

TEST_P(CopySemantics, RoundTripThroughDeviceMemory) {
  for (std::size_t size : {1u, 4u, 1000u, 65536u, 65537u, 3000000u}) {
    std::vector<std::uint8_t> input(size), output(size);
    std::iota(input.begin(), input.end(), std::uint8_t{1});
    DeviceBuffer a(size), b(size);
    ASSERT_OK(Memcpy(a.get(), input.data(), size, kMemcpyHostToDevice));
    ASSERT_OK(Memcpy(b.get(), a.get(), size, kMemcpyDeviceToDevice));
    ASSERT_OK(Memcpy(output.data(), b.get(), size, kMemcpyDeviceToHost));
    EXPECT_EQ(input, output);
  }
}

TEST_P(CopySemantics, HostToHost) {
  std::vector<std::uint8_t> input(100, 7), output(100);
  ASSERT_OK(Memcpy(output.data(), input.data(), input.size(), kMemcpyHostToHost));
  EXPECT_EQ(input, output);
}

TEST_P(CopySemantics, DefaultDirectionInfersFromPointers) {
  DeviceBuffer buffer(64);
  std::vector<std::uint8_t> input(64, 9), output(64);
  Error error = Memcpy(buffer.get(), input.data(), 64, kMemcpyDefault);
  if (error == kErrorNotSupported) GTEST_SKIP() << "the backend cannot infer";
  ASSERT_OK(error);
  ASSERT_OK(Memcpy(output.data(), buffer.get(), 64, kMemcpyDefault));
  EXPECT_EQ(input, output);
}

TEST_P(CopySemantics, InteriorPointers) {
  DeviceBuffer buffer(256);
  ASSERT_OK(Memset(buffer.get(), 1, 256));
  ASSERT_OK(Memset(buffer.bytes() + 64, 2, 128));
  auto bytes = buffer.Read();
  EXPECT_EQ(bytes[63], 1);
  EXPECT_EQ(bytes[64], 2);
  EXPECT_EQ(bytes[191], 2);
  EXPECT_EQ(bytes[192], 1);
}

TEST_P(CopySemantics, MemsetUsesTheLowByte) {
  DeviceBuffer buffer(64);
  ASSERT_OK(Memset(buffer.get(), 0x1234, 64));
  EXPECT_TRUE(AllEqual(buffer.Read(), 0x34));
  ASSERT_OK(Memset(buffer.get(), -1, 64));
  EXPECT_TRUE(AllEqual(buffer.Read(), 0xff));
}

TEST_P(CopySemantics, PageableSourceMayBeReusedAfterAnAsyncCopy) {
  TestStream stream;
  for (std::size_t size : {std::size_t{1000}, std::size_t{1} << 20}) {
    DeviceBuffer buffer(size);
    std::vector<std::uint8_t> source(size, 5);
    ASSERT_OK(MemcpyAsync(buffer.get(), source.data(), size, kMemcpyHostToDevice, stream));
    // From pageable memory the bytes are staged or copied before the call returns.
    std::fill(source.begin(), source.end(), std::uint8_t{6});
    ASSERT_OK(StreamSynchronize(stream));
    EXPECT_TRUE(AllEqual(buffer.Read(), 5));
  }
}

TEST_P(CopySemantics, AsyncCopyToPageableMemoryIsDoneOnReturn) {
  TestStream stream;
  constexpr std::size_t kSize = 1 << 20;
  DeviceBuffer buffer(kSize);
  std::vector<std::uint8_t> target(kSize);
  ASSERT_OK(MemsetAsync(buffer.get(), 8, kSize, stream));
  ASSERT_OK(MemcpyAsync(target.data(), buffer.get(), kSize, kMemcpyDeviceToHost, stream));
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_TRUE(AllEqual(target, 8));
}

TEST_P(CopySemantics, PinnedCopiesDoNotBlock) {
  REQUIRE_FEATURE(kFeatureHostFunction);
  TestStream stream;
  PinnedBuffer input(1000), output(1000);
  DeviceBuffer buffer(1000);
  std::fill_n(input.data(), 1000, std::uint8_t{3});
  std::fill_n(output.data(), 1000, std::uint8_t{0});
  {
    Gate gate;
    gate.Close(stream);
    ASSERT_OK(MemcpyAsync(buffer.get(), input.get(), 1000, kMemcpyHostToDevice, stream));
    ASSERT_OK(MemcpyAsync(output.get(), buffer.get(), 1000, kMemcpyDeviceToHost, stream));
    EXPECT_EQ(StreamQuery(stream), kErrorNotReady);
    EXPECT_TRUE(AllEqual(output, 0));
    gate.Open();
    ASSERT_OK(StreamSynchronize(stream));
  }
  EXPECT_TRUE(AllEqual(output, 3));
}

TEST_P(CopySemantics, PeerCopiesCheckDevices) {
  REQUIRE_FEATURE(kFeaturePeer);
  DeviceBuffer a(64), b(64);
  ASSERT_OK(Memset(a.get(), 4, 64));
  EXPECT_OK(MemcpyPeer(b.get(), 0, a.get(), 0, 64));
  EXPECT_TRUE(AllEqual(b.Read(), 4));
  EXPECT_EQ(MemcpyPeer(b.get(), 99, a.get(), 0, 64), kErrorInvalidDevice);
  EXPECT_EQ(MemcpyPeer(b.get(), 0, a.get(), -1, 64), kErrorInvalidDevice);
  TestStream stream;
  ASSERT_OK(MemsetAsync(a.get(), 5, 64, stream));
  ASSERT_OK(MemcpyPeerAsync(b.get(), 0, a.get(), 0, 64, stream));
  EXPECT_TRUE(AllEqual(b.Read(), 5));
}

INSTANTIATE_SEMANTICS(CopySemantics);

}  // namespace
}  // namespace infini::rt::runtime
