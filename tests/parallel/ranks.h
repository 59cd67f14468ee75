#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/threads.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/parallel/in_process_ccl.h"
#include "infini_train/parallel/thread_ranks.h"
#include "tests/common/device_test.h"

namespace infini_train::test {

using parallel::Ccl;
using parallel::CclGroup;
using parallel::Communicator;
using parallel::InProcessCcl;
using parallel::ParallelContext;
using parallel::ReduceOp;
using parallel::RunThreadRanks;

/// The devices of ranks 0, 1, ...: those of the kind under test from the tested one on, in turn.
inline std::vector<Device> DevicesOfRanks(Device device, int num_ranks) {
  const int count = GetDeviceGuardImpl(device.type()).DeviceCount();
  std::vector<Device> devices;
  for (int rank = 0; rank < num_ranks; ++rank)
    devices.emplace_back(device.type(), (device.index() + rank) % count);
  return devices;
}

/// Ranks over the collectives of threads, or over the provider's.
struct RankCase {
  int num_ranks = 1;
  bool provider = false;
};
inline void PrintTo(const RankCase& value, std::ostream* out) {
  *out << value.num_ranks << (value.provider ? " ranks over the provider" : " ranks in process");
}
inline std::string NameOfRankCase(
    const ::testing::TestParamInfo<std::tuple<Device, RankCase>>& info) {
  const RankCase& value = std::get<1>(info.param);
  return std::to_string(value.num_ranks) + (value.provider ? "OverTheProvider" : "InProcess");
}
/// So many ranks in process and, where a provider in the program registered collectives, so many
/// over these.
inline std::vector<RankCase> RankCases(std::initializer_list<int> in_process,
                                       std::initializer_list<int> over_the_provider) {
  std::vector<RankCase> cases;
  for (const int num_ranks : in_process)
    cases.push_back({num_ranks, false});
  if (parallel::HasCcl(DeviceType::kCUDA) || parallel::HasCcl(DeviceType::kPrivateUse1)) {
    for (const int num_ranks : over_the_provider)
      cases.push_back({num_ranks, true});
  }
  return cases;
}
inline std::vector<RankCase> AllRankCases() {
  return RankCases({1, 2, 3, 4, 8}, {1, 2, 4, 8});
}

/// Suites of ranks. Those over a provider's collectives need one, and a device for each rank; those
/// in process reduce by kernels of the device.
class RanksTest : public DeviceTestWith<RankCase> {
 protected:
  void SetUp() override {
    if (!value().provider) {
      if (!HasKernel(device().type(), OpId::kAdd))
        GTEST_SKIP() << ToString(device().type()) << " has no kernels to reduce with";
      return;
    }
    if (ccl().Name() == "none") GTEST_SKIP() << "built without collectives";
    const int count = GetDeviceGuardImpl(device().type()).DeviceCount();
    if (count < size())
      GTEST_SKIP() << size() << " ranks need as many devices; there are " << count;
  }

  static int size() { return value().num_ranks; }
  static Ccl& ccl() {
    return value().provider ? parallel::GetCcl(device().type()) : InProcessCcl();
  }
  static void RunRanks(const std::function<void(Communicator&)>& body) {
    RunThreadRanks(ccl(), DevicesOfRanks(device(), size()), [&](ParallelContext& context) {
      SetNumThreads(1);
      body(*context.world());
    });
  }
};

/// A variable of the environment for a scope.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) {
    setenv(name, value, /*overwrite=*/1);
  }
  ~EnvironmentVariable() { unsetenv(name_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
};

}  // namespace infini_train::test
