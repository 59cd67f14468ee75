// Rungs 1 to 4 of docs/writing-a-backend.md: a runtime comes to life. Each needs only the functions
// that its rung fills in, and those of the rungs before it.

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>

#include "tests/runtime/runtime_test.h"

namespace infini_train::test {
namespace {

class Rung01DeviceCount : public RuntimeTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung01DeviceCount);

TEST_P(Rung01DeviceCount, DevicesAreFoundChosenAndDescribed) {
  const int count = impl().DeviceCount();
  ASSERT_GE(count, 1) << "DeviceCount() finds no device: is the driver loaded?";
  for (int i = 0; i < count; ++i) {
    impl().SetDevice(i);
    EXPECT_EQ(impl().CurrentDevice(), i);
    const DeviceProperties properties = impl().Properties(i);
    EXPECT_FALSE(properties.name.empty());
    EXPECT_GT(properties.total_memory, 0u);
    EXPECT_LE(properties.free_memory, properties.total_memory);
  }
  EXPECT_THROW(impl().SetDevice(count), std::exception);
  impl().SetDevice(0);
  EXPECT_EQ(Device::Parse(device().ToString()), device());
}

class Rung02Malloc : public RuntimeTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung02Malloc);

TEST_P(Rung02Malloc, MemoryIsAllocatedAlignedAndFreed) {
  const DeviceGuard guard(device());
  for (const std::size_t bytes : kByteSizes) {
    void* first = impl().Allocate(bytes);
    void* second = impl().Allocate(bytes);
    ASSERT_NE(first, nullptr) << bytes << " bytes";
    ASSERT_NE(second, nullptr) << bytes << " bytes";
    EXPECT_NE(first, second);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u) << bytes << " bytes";
    impl().Free(first);
    impl().Free(second);
  }
  EXPECT_EQ(impl().Allocate(SIZE_MAX / 4), nullptr) << "out of memory is null, not an error";
}

class Rung03Copy : public RuntimeTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung03Copy);

TEST_P(Rung03Copy, BytesGoToTheDeviceAroundItAndBack) {
  const DeviceGuard guard(device());
  for (const std::size_t bytes : kByteSizes) {
    const Memory first(Pattern(bytes, 1));
    const Memory second(bytes);
    impl().CopyAsync(second.get(), first.get(), bytes, CopyKind::kDeviceToDevice, nullptr);
    ASSERT_TRUE(second.Read() == Pattern(bytes, 1)) << bytes << " bytes";
  }
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(x.ToVector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

class Rung04StreamAndEvent : public RuntimeTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung04StreamAndEvent);

TEST_P(Rung04StreamAndEvent, AnEventHoldsOneStreamUpForAnother) {
  const DeviceGuard guard(device());
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const Stream producer;
  const Stream consumer;
  const Event produced;
  EXPECT_TRUE(impl().QueryEvent(produced.get())) << "an event that was never recorded is done";
  const Memory memory(kBytes);
  FillSlowly(memory, 7, producer.get());
  impl().RecordEvent(produced.get(), producer.get());
  impl().StreamWaitEvent(consumer.get(), produced.get());
  EXPECT_TRUE(memory.Read(consumer.get()) == Bytes(kBytes, 7));
  EXPECT_TRUE(impl().QueryEvent(produced.get()));
  const Event later;
  impl().RecordEvent(later.get(), consumer.get());
  impl().SynchronizeEvent(later.get());
  EXPECT_GE(impl().ElapsedMilliseconds(produced.get(), later.get()), 0.0f);
  impl().SynchronizeDevice();
}

}  // namespace
}  // namespace infini_train::test
