// Rung 10 of docs/writing-a-backend.md: several devices of a provider work together, over its own
// collectives.

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/parallel/thread_ranks.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

using parallel::CclGroup;
using parallel::Communicator;
using parallel::ParallelContext;
using parallel::ReduceOp;

class Rung10Collectives : public DeviceTest {
 protected:
  void SetUp() override {
    if (!parallel::HasCcl(device().type())) {
      GTEST_SKIP() << ToString(device().type())
                   << " registers no collectives (REGISTER_CCL): those of threads stand in";
    }
    if (GetDeviceGuardImpl(device().type()).DeviceCount() < 2)
      GTEST_SKIP() << "collectives need 2 devices; there is 1";
  }

  static void RunRanks(const std::function<void(Communicator&)>& body) {
    const std::vector<Device> devices = {{device().type(), 0}, {device().type(), 1}};
    parallel::RunThreadRanks(devices,
                             [&](ParallelContext& context) { body(*context.data_parallel()); });
  }

  /// first, first + 1, ...
  static std::vector<double> Counting(double first, std::size_t count) {
    std::vector<double> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung10Collectives);

TEST_P(Rung10Collectives, TwoRanksAddUp) {
  RunRanks([](Communicator& communicator) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      const Tensor x =
          MakeTensor(communicator.device(), dtype, {4}, Counting(10.0 * communicator.rank(), 4));
      communicator.AllReduce(x);
      ExpectEqual(x, {10, 12, 14, 16});
      communicator.AllReduce(x, ReduceOp::kAverage);
      ExpectEqual(x, {10, 12, 14, 16});
    }
  });
}

TEST_P(Rung10Collectives, TheyGatherScatterAndBroadcast) {
  RunRanks([](Communicator& communicator) {
    const Device device = communicator.device();
    const double rank = communicator.rank();
    const Tensor own = MakeTensor(device, DataType::kFloat32, {3}, Counting(3 * rank, 3));
    const Tensor all = MakeOutput(device, DataType::kFloat32, {2, 3});
    communicator.AllGather(own, all);
    ExpectEqual(all, Counting(0, 6));
    communicator.ReduceScatter(all, own, ReduceOp::kMax);
    ExpectEqual(own, Counting(3 * rank, 3));
    communicator.Broadcast(own, 1);
    ExpectEqual(own, Counting(3, 3));
    communicator.Barrier();
  });
}

TEST_P(Rung10Collectives, TheySendEachOther) {
  RunRanks([](Communicator& communicator) {
    const int peer = 1 - communicator.rank();
    const Tensor mine =
        MakeTensor(communicator.device(), DataType::kInt64, {5}, Counting(communicator.rank(), 5));
    const Tensor theirs = MakeOutput(communicator.device(), DataType::kInt64, {5});
    CclGroup group(communicator);
    communicator.Recv(theirs, peer);
    communicator.Send(mine, peer);
    group.End();
    ExpectEqual(theirs, Counting(peer, 5));
  });
}

}  // namespace
}  // namespace infini_train::test
