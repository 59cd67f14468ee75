#include "infini_train/core/device/cpu_stream.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "infini_train/core/device/device_guard.h"

namespace infini_train {
namespace {

/// A stream of the CPU whose work waits for Go().
class CpuStreamTest : public ::testing::Test {
 protected:
  ~CpuStreamTest() override {
    Go();
    cpu().DestroyStream(stream_);
  }

  static DeviceGuardImpl& cpu() { return GetDeviceGuardImpl(DeviceType::kCPU); }

  void EnqueueWait() {
    EnqueueOnCpu(stream_, [this] { gate_.get_future().wait(); });
  }
  void Go() {
    if (!open_) gate_.set_value();
    open_ = true;
  }

  const StreamHandle stream_ = cpu().CreateStream(0);

 private:
  std::promise<void> gate_;
  bool open_ = false;
};

TEST_F(CpuStreamTest, TasksRunInOrderBesideTheCaller) {
  std::vector<int> order;
  std::thread::id worker;
  EnqueueWait();
  for (int i = 0; i < 3; ++i) {
    EnqueueOnCpu(stream_, [&, i] {
      order.push_back(i);
      worker = std::this_thread::get_id();
    });
  }
  Go();
  cpu().SynchronizeStream(stream_);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST_F(CpuStreamTest, EventsMarkPlaces) {
  const EventHandle before = cpu().CreateEvent();
  const EventHandle after = cpu().CreateEvent();
  cpu().RecordEvent(before, stream_);
  EnqueueWait();
  cpu().RecordEvent(after, stream_);
  EXPECT_TRUE(cpu().QueryEvent(before));
  EXPECT_FALSE(cpu().QueryEvent(after));

  // Another stream, and the default one.
  const StreamHandle other = cpu().CreateStream(0);
  bool done = false;
  cpu().StreamWaitEvent(other, after);
  EnqueueOnCpu(other, [&] { done = true; });
  std::thread opener([this] { Go(); });
  cpu().StreamWaitEvent(nullptr, after);
  EXPECT_TRUE(cpu().QueryEvent(after));
  EXPECT_GE(cpu().ElapsedMilliseconds(before, after), 0.0f);
  cpu().SynchronizeStream(other);
  EXPECT_TRUE(done);
  opener.join();
  cpu().DestroyStream(other);
  cpu().DestroyEvent(before);
  cpu().DestroyEvent(after);
}

TEST_F(CpuStreamTest, CopiesAndKernelsKeepTheOrder) {
  int value = 1;
  int copy = 0;
  EnqueueWait();
  EnqueueOnCpu(stream_, [&] { value = 2; });
  std::thread opener([this] { Go(); });
  cpu().CopyAsync(&copy, &value, sizeof(int), CopyKind::kDeviceToDevice, stream_);
  EXPECT_EQ(copy, 2);
  opener.join();

  EnqueueOnCpu(stream_, [&] { value = 3; });
  const StreamGuard current(Device(), stream_);
  EXPECT_EQ(value, 3) << "what is on a stream goes before the kernels that it becomes current for";
  EnqueueOnCpu(stream_, [&] { value = 4; });
  EXPECT_EQ(value, 4) << "the current stream has no other thread";
}

TEST_F(CpuStreamTest, TheDeviceWaitsForAllStreams) {
  bool done = false;
  EnqueueWait();
  EnqueueOnCpu(stream_, [&] { done = true; });
  std::thread opener([this] { Go(); });
  cpu().SynchronizeDevice();
  EXPECT_TRUE(done);
  opener.join();
}

TEST_F(CpuStreamTest, TheDefaultStreamIsTheCaller) {
  std::thread::id worker;
  EnqueueOnCpu(nullptr, [&] { worker = std::this_thread::get_id(); });
  EXPECT_EQ(worker, std::this_thread::get_id());
}

}  // namespace
}  // namespace infini_train
