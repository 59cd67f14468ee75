#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/core/device/private_use1.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

std::vector<std::string> calls;

std::string NameOf(StreamHandle stream) {
  return stream == nullptr ? "default" : *static_cast<std::string*>(stream);
}

/// Two devices in host memory that note the order of what they are asked for. A stream is its name.
class NotingDeviceGuard final : public test::MockDeviceGuard {
 public:
  void CopyAsync(void* destination, const void* source, std::size_t bytes, CopyKind kind,
                 StreamHandle stream) override {
    calls.push_back((kind == CopyKind::kHostToDevice ? "upload " : "download ") + NameOf(stream));
    MockDeviceGuard::CopyAsync(destination, source, bytes, kind, stream);
  }
  void CopyPeerAsync(void* destination, int destination_device, const void* source,
                     int source_device, std::size_t bytes, StreamHandle stream) override {
    calls.push_back("copy " + std::to_string(source_device) + " to " +
                    std::to_string(destination_device) + " on " + NameOf(stream) + " of " +
                    std::to_string(CurrentDevice()));
    MockDeviceGuard::CopyPeerAsync(destination, destination_device, source, source_device, bytes,
                                   stream);
  }
  void RecordEvent(EventHandle, StreamHandle stream) override {
    calls.push_back("record " + NameOf(stream) + " of " + std::to_string(CurrentDevice()));
  }
  void StreamWaitEvent(StreamHandle stream, EventHandle) override {
    calls.push_back("wait " + NameOf(stream) + " of " + std::to_string(CurrentDevice()));
  }
  void SynchronizeStream(StreamHandle stream) override {
    calls.push_back("synchronize " + NameOf(stream));
  }
};

class TransferTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    core::RegisterPrivateUse1Backend({"mock", DataType::kBFloat16});
    detail::DeviceGuardRegistrar(
        DeviceType::kPrivateUse1,
        []() -> std::unique_ptr<DeviceGuardImpl> { return std::make_unique<NotingDeviceGuard>(); },
        __FILE__, __LINE__);
  }
  void SetUp() override { calls.clear(); }

  const Device first_{DeviceType::kPrivateUse1, 0};
  const Device second_{DeviceType::kPrivateUse1, 1};
  std::string left_ = "left";
  std::string right_ = "right";
  StreamGuard left_guard_{first_, &left_};
  StreamGuard right_guard_{second_, &right_};
};

TEST_F(TransferTest, FromAndToTheHostOnTheDevicesStream) {
  const Tensor host = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor device = To(Transpose(host, 0, 1), first_);
  EXPECT_EQ(device.device(), first_);
  EXPECT_TRUE(device.IsContiguous());
  // The host's memory may be written as soon as To returns, and read when it comes back.
  EXPECT_EQ(calls, (std::vector<std::string>{"upload left", "synchronize left"}));
  calls.clear();
  EXPECT_EQ(To(device, Device()).ToVector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(calls, (std::vector<std::string>{"download left", "synchronize left"}));
}

TEST_F(TransferTest, BetweenDevicesInOrderOfBothStreamsWithoutTheHost) {
  const Tensor source = To(Tensor::FromVector<float>({1, 2}, {2}), first_);
  calls.clear();
  const Tensor target = To(source, second_);
  // After earlier uses of the target's memory and of the source, and before later ones.
  EXPECT_EQ(calls, (std::vector<std::string>{"record right of 1", "wait left of 0",
                                             "copy 0 to 1 on left of 0", "record left of 0",
                                             "wait right of 1"}));
  EXPECT_EQ(target.ToVector<float>(), (std::vector<float>{1, 2}));
}

TEST_F(TransferTest, GradientsTravelBack) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3}, {3}).set_requires_grad();
  const Tensor there = To(To(x, first_), second_);
  EXPECT_TRUE(there.requires_grad());
  const Tensor back = To(there, Device());
  Backward(Sum(back * back));
  EXPECT_TRUE(x.grad().device().is_cpu());
  EXPECT_EQ(x.grad().ToVector<float>(), (std::vector<float>{2, 4, 6}));
}

TEST_F(TransferTest, CopyInPlaceTakesASourceOnAnotherDevice) {
  const Tensor source = To(Tensor::FromVector<float>({1, 2}, {2}), second_);
  const Tensor x = Zeros({2, 2}, DataType::kFloat64);
  CopyInPlace(x, source);
  EXPECT_EQ(x.ToVector<double>(), (std::vector<double>{1, 2, 1, 2}));
}

TEST_F(TransferTest, NothingIsCopiedForNoElements) {
  EXPECT_EQ(To(Zeros({0, 3}), first_).shape(), (Dims{0, 3}));
  EXPECT_TRUE(calls.empty());
}

}  // namespace
}  // namespace infini_train
