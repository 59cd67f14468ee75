#include <cstdint>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

class AsyncMemorySemantics : public Semantics {
 protected:
  void SetUp() override {
    Semantics::SetUp();
    REQUIRE_FEATURE(kFeatureAsyncMemory);
  }

  /// MetaX is known to have high-water marks and the release threshold.
  static bool HasAllPoolAttributes() { return GetParam() != Device::Type::kMetax; }

  std::uint64_t Attribute(MemPoolAttr attr) const {
    MemPool pool = nullptr;
    std::uint64_t value = 0;
    EXPECT_OK(DeviceGetDefaultMemPool(&pool, 0));
    EXPECT_OK(MemPoolGetAttribute(pool, attr, &value));
    return value;
  }
};

TEST_P(AsyncMemorySemantics, SizeZeroAndNulls) {
  TestStream stream;
  void* ptr = reinterpret_cast<void*>(1);
  EXPECT_OK(MallocAsync(&ptr, 0, stream));
  EXPECT_EQ(ptr, nullptr);
  EXPECT_OK(FreeAsync(nullptr, stream));
  EXPECT_EQ(MallocAsync(nullptr, 64, stream), kErrorInvalidValue);
}

TEST_P(AsyncMemorySemantics, UsableInStreamOrder) {
  TestStream stream;
  PinnedBuffer host(4096);
  void* ptr = nullptr;
  ASSERT_OK(MallocAsync(&ptr, 4096, stream));
  ASSERT_OK(MemsetAsync(ptr, 12, 4096, stream));
  ASSERT_OK(MemcpyAsync(host.get(), ptr, 4096, kMemcpyDeviceToHost, stream));
  ASSERT_OK(FreeAsync(ptr, stream));
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_TRUE(AllEqual(host, 12));
}

TEST_P(AsyncMemorySemantics, FreeBeforeTheLastUseEnds) {
  TestStream stream;
  PinnedBuffer host(1 << 20);
  Gate gate;
  void *p = nullptr, *q = nullptr;
  ASSERT_OK(MallocAsync(&p, 1 << 20, stream));
  ASSERT_OK(StreamSynchronize(stream));
  gate.Close(stream);
  ASSERT_OK(MemsetAsync(p, 1, 1 << 20, stream));
  ASSERT_OK(MemcpyAsync(host.get(), p, 1 << 20, kMemcpyDeviceToHost, stream));
  ASSERT_OK(FreeAsync(p, stream));
  // Same stream: the memory may come back at once, ordered behind its last use.
  ASSERT_OK(MallocAsync(&q, 1 << 20, stream));
  ASSERT_OK(MemsetAsync(q, 2, 1 << 20, stream));
  ASSERT_OK(FreeAsync(q, stream));
  gate.Open();
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_TRUE(AllEqual(host, 1));
}

TEST_P(AsyncMemorySemantics, MixesWithSynchronousCalls) {
  TestStream stream;
  void* ptr = nullptr;
  ASSERT_OK(MallocAsync(&ptr, 64, stream));
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_OK(Free(ptr));
  ASSERT_OK(Malloc(&ptr, 64));
  EXPECT_OK(FreeAsync(ptr, stream));
  EXPECT_OK(StreamSynchronize(stream));
}

TEST_P(AsyncMemorySemantics, DoubleFreeIsAnError) {
  TestStream stream;
  void* ptr = nullptr;
  ASSERT_OK(MallocAsync(&ptr, 64, stream));
  EXPECT_OK(FreeAsync(ptr, stream));
  EXPECT_EQ(FreeAsync(ptr, stream), kErrorInvalidValue);
  EXPECT_EQ(GetLastError(), kErrorInvalidValue);
}

TEST_P(AsyncMemorySemantics, PoolFigures) {
  REQUIRE_FEATURE(kFeatureMemoryPool);
  TestStream stream;
  MemPool pool = nullptr;
  ASSERT_OK(DeviceGetDefaultMemPool(&pool, 0));
  ASSERT_OK(StreamSynchronize(stream));
  std::uint64_t zero = 0;
  ASSERT_OK(MemPoolSetAttribute(pool, kMemPoolAttrUsedMemHigh, &zero));
  ASSERT_OK(MemPoolSetAttribute(pool, kMemPoolAttrReservedMemHigh, &zero));
  std::uint64_t used = Attribute(kMemPoolAttrUsedMemHigh);
  constexpr std::size_t kBytes = 8 << 20;
  void* ptr = nullptr;
  ASSERT_OK(MallocAsync(&ptr, kBytes, stream));
  ASSERT_OK(StreamSynchronize(stream));
  if (HasAllPoolAttributes()) {
    EXPECT_GE(Attribute(kMemPoolAttrUsedMemCurrent), used + kBytes);
    EXPECT_GE(Attribute(kMemPoolAttrReservedMemCurrent), kBytes);
  }
  ASSERT_OK(FreeAsync(ptr, stream));
  ASSERT_OK(StreamSynchronize(stream));
  if (HasAllPoolAttributes()) {
    EXPECT_EQ(Attribute(kMemPoolAttrUsedMemCurrent), used);
  }
  EXPECT_GE(Attribute(kMemPoolAttrUsedMemHigh), used + kBytes);
  EXPECT_GE(Attribute(kMemPoolAttrReservedMemHigh), kBytes);
}

TEST_P(AsyncMemorySemantics, ReleaseThresholdDecidesWhatASynchroniseReleases) {
  REQUIRE_FEATURE(kFeatureMemoryPool);
  if (!HasAllPoolAttributes())
    GTEST_SKIP() << "attributes of pools that the SDK is not known to have";
  TestStream stream;
  MemPool pool = nullptr;
  ASSERT_OK(DeviceGetDefaultMemPool(&pool, 0));
  EXPECT_EQ(Attribute(kMemPoolAttrReleaseThreshold), 0u);
  constexpr std::size_t kBytes = 64 << 20;
  std::uint64_t threshold = UINT64_MAX;
  ASSERT_OK(MemPoolSetAttribute(pool, kMemPoolAttrReleaseThreshold, &threshold));
  void* ptr = nullptr;
  ASSERT_OK(MallocAsync(&ptr, kBytes, stream));
  ASSERT_OK(FreeAsync(ptr, stream));
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_GE(Attribute(kMemPoolAttrReservedMemCurrent), kBytes);
  threshold = 0;
  ASSERT_OK(MemPoolSetAttribute(pool, kMemPoolAttrReleaseThreshold, &threshold));
  ASSERT_OK(DeviceSynchronize());
  if (Has(kFeatureMemoryPoolTrim)) {
    ASSERT_OK(MemPoolTrimTo(pool, 0));
  }
  EXPECT_LT(Attribute(kMemPoolAttrReservedMemCurrent), kBytes);
}

TEST_P(AsyncMemorySemantics, PoolAttributeErrors) {
  REQUIRE_FEATURE(kFeatureMemoryPool);
  MemPool pool = nullptr;
  ASSERT_OK(DeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t five = 5, value = 0;
  EXPECT_EQ(MemPoolSetAttribute(pool, kMemPoolAttrUsedMemHigh, &five), kErrorInvalidValue);
  EXPECT_EQ(MemPoolSetAttribute(pool, kMemPoolAttrUsedMemCurrent, &value), kErrorInvalidValue);
  EXPECT_EQ(MemPoolGetAttribute(pool, static_cast<MemPoolAttr>(99), &value), kErrorInvalidValue);
  EXPECT_EQ(DeviceGetDefaultMemPool(nullptr, 0), kErrorInvalidValue);
  EXPECT_EQ(DeviceGetDefaultMemPool(&pool, 99), kErrorInvalidDevice);
  if (Has(kFeatureMemoryPoolTrim)) {
    EXPECT_EQ(MemPoolTrimTo(nullptr, 0), kErrorInvalidValue);
  }
}

TEST_P(AsyncMemorySemantics, ReuseSwitchesAreOnByDefault) {
  REQUIRE_FEATURE(kFeatureMemoryPool);
  if (!HasAllPoolAttributes())
    GTEST_SKIP() << "attributes of pools that the SDK is not known to have";
  MemPool pool = nullptr;
  ASSERT_OK(DeviceGetDefaultMemPool(&pool, 0));
  for (MemPoolAttr attr : {kMemPoolReuseFollowEventDependencies, kMemPoolReuseAllowOpportunistic,
                           kMemPoolReuseAllowInternalDependencies}) {
    int value = 0;
    EXPECT_OK(MemPoolGetAttribute(pool, attr, &value));
    EXPECT_EQ(value, 1);
  }
}

INSTANTIATE_SEMANTICS(AsyncMemorySemantics);

}  // namespace
}  // namespace infini::rt::runtime
