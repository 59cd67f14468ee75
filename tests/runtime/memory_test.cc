// Allocating, copying and filling device memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "tests/runtime/runtime_test.h"

namespace infini_train::test {
namespace {

class RuntimeMemoryTest : public RuntimeTest {
 protected:
  RuntimeMemoryTest() : guard_(device()) {}

  const DeviceGuard guard_;
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RuntimeMemoryTest);

/// Bytes before and after what a test writes.
constexpr std::size_t kMargin = 70;

TEST_P(RuntimeMemoryTest, BlocksAreAlignedAndApart) {
  std::vector<std::unique_ptr<Memory>> blocks;
  std::vector<std::pair<std::uintptr_t, std::size_t>> ranges;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t bytes : kByteSizes) {
      blocks.push_back(std::make_unique<Memory>(bytes));
      ranges.emplace_back(reinterpret_cast<std::uintptr_t>(blocks.back()->get()), bytes);
      EXPECT_EQ(ranges.back().first % 64, 0u) << bytes << " bytes";
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i)
    EXPECT_GE(ranges[i].first, ranges[i - 1].first + ranges[i - 1].second);
}

TEST_P(RuntimeMemoryTest, MoreThanThereIsGivesNullAndHarmsNothing) {
  const std::size_t total = impl().Properties(device().index()).total_memory;
  EXPECT_EQ(impl().Allocate(SIZE_MAX / 4), nullptr);
  if (!device().is_cpu()) {  // The host promises memory that it does not have.
    EXPECT_EQ(impl().Allocate(total * 2), nullptr);
  }
  const Memory memory(Pattern(1000, 2));
  EXPECT_EQ(memory.Read(), Pattern(1000, 2));
  try {
    Tensor::Empty({std::int64_t{1} << 60}, DataType::kUInt8, device());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(device().ToString()), std::string::npos)
        << error.what();
  }
}

TEST_P(RuntimeMemoryTest, FreedMemoryCanBeHadAgain) {
  // More in total than a device has, were it not freed.
  const std::size_t total = impl().Properties(device().index()).total_memory;
  const std::size_t bytes = std::min(total / 8, std::size_t{256} << 20);
  for (int i = 0; i < 64; ++i)
    const Memory memory(bytes);
}

TEST_P(RuntimeMemoryTest, CopiesToFromAndWithinTheDevice) {
  for (const std::size_t bytes : kByteSizes) {
    for (const std::size_t offset : {0, 1, 3, 64}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes at offset " << offset);
      const Bytes pattern = Pattern(bytes, 3);
      const Bytes around = Pattern(bytes + offset + kMargin, 4);
      Bytes expected = around;
      std::copy(pattern.begin(), pattern.end(), expected.begin() + static_cast<long>(offset));

      const Memory first(around);
      impl().CopyAsync(first.get() + offset, pattern.data(), bytes, CopyKind::kHostToDevice,
                       nullptr);
      impl().SynchronizeStream(nullptr);
      ASSERT_TRUE(first.Read() == expected) << "host to device";

      const Memory second(around);
      impl().CopyAsync(second.get() + offset, first.get() + offset, bytes,
                       CopyKind::kDeviceToDevice, nullptr);
      ASSERT_TRUE(second.Read() == expected) << "device to device";

      Bytes back = around;
      impl().CopyAsync(back.data() + offset, second.get() + offset, bytes, CopyKind::kDeviceToHost,
                       nullptr);
      impl().SynchronizeStream(nullptr);
      ASSERT_TRUE(back == expected) << "device to host";
    }
  }
}

TEST_P(RuntimeMemoryTest, FillsWithTheLowByteOfAValue) {
  for (const std::size_t bytes : kByteSizes) {
    for (const int value : {0, 1, 0xA5, 0xFF, -1, 0x17F}) {
      const Bytes around = Pattern(bytes + 3 + kMargin, 5);
      Bytes expected = around;
      std::fill_n(expected.begin() + 3, bytes, static_cast<std::uint8_t>(value));
      const Memory memory(around);
      impl().FillBytesAsync(memory.get() + 3, value, bytes, nullptr);
      ASSERT_TRUE(memory.Read() == expected) << bytes << " bytes of " << value;
    }
  }
}

TEST_P(RuntimeMemoryTest, NoBytesAreNoWork) {
  const Memory memory(Pattern(10, 6));
  Bytes host = Pattern(10, 7);
  impl().CopyAsync(memory.get(), host.data(), 0, CopyKind::kHostToDevice, nullptr);
  impl().CopyAsync(host.data(), memory.get(), 0, CopyKind::kDeviceToHost, nullptr);
  impl().CopyAsync(memory.get(), memory.get(), 0, CopyKind::kDeviceToDevice, nullptr);
  impl().CopyAsync(nullptr, nullptr, 0, CopyKind::kDeviceToDevice, nullptr);
  impl().FillBytesAsync(memory.get(), 1, 0, nullptr);
  impl().FillBytesAsync(nullptr, 1, 0, nullptr);
  EXPECT_EQ(memory.Read(), Pattern(10, 6));
  EXPECT_EQ(host, Pattern(10, 7));
}

TEST_P(RuntimeMemoryTest, HostMemoryOfTheProviderIsOrdinaryToTheHost) {
  for (const std::size_t bytes : kByteSizes) {
    auto* host = static_cast<std::uint8_t*>(impl().AllocateHost(bytes));
    ASSERT_NE(host, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host) % 64, 0u);
    const Bytes pattern = Pattern(bytes, 8);
    std::copy(pattern.begin(), pattern.end(), host);
    const Memory memory(bytes);
    impl().CopyAsync(memory.get(), host, bytes, CopyKind::kHostToDevice, nullptr);
    impl().SynchronizeStream(nullptr);
    std::fill_n(host, bytes, std::uint8_t{0});
    impl().CopyAsync(host, memory.get(), bytes, CopyKind::kDeviceToHost, nullptr);
    impl().SynchronizeStream(nullptr);
    EXPECT_TRUE(std::equal(pattern.begin(), pattern.end(), host)) << bytes << " bytes";
    impl().FreeHost(host);
  }
}

TEST_P(RuntimeMemoryTest, PeersCopyToEachOther) {
  const int count = impl().DeviceCount();
  if (count < 2) GTEST_SKIP() << "there is one device";
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      for (const int current : {from, to}) {
        SCOPED_TRACE(testing::Message() << from << " to " << to << ", current " << current);
        constexpr std::size_t kBytes = (1 << 20) + 7;
        const auto on = [](int index, const Bytes& content) {
          const DeviceGuard guard({device().type(), index});
          return std::make_unique<Memory>(content);
        };
        const auto source = on(from, Pattern(kBytes, 9));
        const auto target = on(to, Bytes(kBytes + kMargin));
        {
          const DeviceGuard guard({device().type(), current});
          const Stream stream;
          impl().CopyPeerAsync(target->get() + 1, to, source->get(), from, kBytes, stream.get());
          impl().CopyPeerAsync(target->get(), to, source->get(), from, 0, stream.get());
          impl().SynchronizeStream(stream.get());
          EXPECT_EQ(impl().CurrentDevice(), current);
        }
        Bytes expected(kBytes + kMargin);
        const Bytes pattern = Pattern(kBytes, 9);
        std::copy(pattern.begin(), pattern.end(), expected.begin() + 1);
        const DeviceGuard guard({device().type(), to});
        ASSERT_TRUE(target->Read() == expected);
      }
    }
  }
}

}  // namespace
}  // namespace infini_train::test
