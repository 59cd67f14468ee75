#include <cstdint>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

class MemorySemantics : public Semantics {};

TEST_P(MemorySemantics, SizeZeroGivesNull) {
  void* ptr = reinterpret_cast<void*>(1);
  EXPECT_OK(Malloc(&ptr, 0));
  EXPECT_EQ(ptr, nullptr);
  ptr = reinterpret_cast<void*>(1);
  EXPECT_OK(MallocHost(&ptr, 0));
  EXPECT_EQ(ptr, nullptr);
}

TEST_P(MemorySemantics, NullOutPointerIsAnInvalidValue) {
  EXPECT_EQ(Malloc(nullptr, 4), kErrorInvalidValue);
  EXPECT_EQ(GetLastError(), kErrorInvalidValue);
  EXPECT_EQ(MallocHost(nullptr, 4), kErrorInvalidValue);
}

TEST_P(MemorySemantics, FreeingNullIsFine) {
  EXPECT_OK(Free(nullptr));
  EXPECT_OK(FreeHost(nullptr));
}

TEST_P(MemorySemantics, AddressesAreAligned) {
  for (std::size_t size : {1u, 17u, 4096u, 1000000u}) {
    DeviceBuffer buffer(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.get()) % 256, 0u);
  }
}

TEST_P(MemorySemantics, BadFreesAreErrors) {
  void* ptr = nullptr;
  ASSERT_OK(Malloc(&ptr, 1024));
  EXPECT_EQ(Free(static_cast<char*>(ptr) + 16), kErrorInvalidValue);
  EXPECT_OK(Free(ptr));
  EXPECT_EQ(Free(ptr), kErrorInvalidValue);
  int on_stack = 0;
  EXPECT_EQ(Free(&on_stack), kErrorInvalidValue);
}

TEST_P(MemorySemantics, BadHostFreesAreErrors) {
  void* ptr = nullptr;
  ASSERT_OK(MallocHost(&ptr, 64));
  EXPECT_EQ(FreeHost(static_cast<char*>(ptr) + 8), kErrorInvalidValue);
  EXPECT_OK(FreeHost(ptr));
  EXPECT_EQ(FreeHost(ptr), kErrorInvalidValue);
  DeviceBuffer device(64);
  EXPECT_EQ(FreeHost(device.get()), kErrorInvalidValue);
}

TEST_P(MemorySemantics, TooMuchIsOutOfMemoryAndNotSticky) {
  void* ptr = nullptr;
  EXPECT_EQ(Malloc(&ptr, std::size_t{1} << 50), kErrorMemoryAllocation);
  EXPECT_EQ(GetLastError(), kErrorMemoryAllocation);
  EXPECT_OK(GetLastError());
  EXPECT_OK(Malloc(&ptr, 64));
  EXPECT_OK(Free(ptr));
}

TEST_P(MemorySemantics, MemGetInfoTakesNulls) {
  std::size_t free = 0, total = 0;
  EXPECT_OK(MemGetInfo(&free, &total));
  EXPECT_LE(free, total);
  EXPECT_GT(free, 0u);
  EXPECT_OK(MemGetInfo(nullptr, &total));
  EXPECT_OK(MemGetInfo(&free, nullptr));
}

TEST_P(MemorySemantics, AllocationsShowInMemGetInfo) {
  constexpr std::size_t kBytes = 64 << 20;
  std::size_t before = 0, during = 0;
  ASSERT_OK(MemGetInfo(&before, nullptr));
  {
    DeviceBuffer buffer(kBytes);
    ASSERT_OK(MemGetInfo(&during, nullptr));
  }
  EXPECT_LE(during + kBytes, before);
}

INSTANTIATE_SEMANTICS(MemorySemantics);

}  // namespace
}  // namespace infini::rt::runtime
