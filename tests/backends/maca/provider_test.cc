#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/device/provider_flags.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/kernel_library.h"
#include "infini_train/parallel/ccl.h"
#include "infini_train_maca/backend.h"

namespace infini_train {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Device kMaca(DeviceType::kPrivateUse1, 0);

DeviceGuardImpl& Guard() {
  return GetDeviceGuardImpl(DeviceType::kPrivateUse1);
}

using Environment = std::vector<std::pair<const char*, const char*>>;

/// Runs `body` in a process of its own, where nothing has used the device yet.
template <typename Body>
void With(const Environment& environment, Body&& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        for (const char* name : {"MACA_LAUNCH_BLOCKING", "MCCL_P2P_DISABLE",
                                 "INFINI_MCCL_ALLREDUCE_SEGMENT_MB", "INFINI_MACA_GEMM_FP64_ACCUM"})
          ::unsetenv(name);
        for (const auto& [name, value] : environment)
          ::setenv(name, value, /*overwrite=*/1);
        body();
        std::_Exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
      },
      ::testing::ExitedWithCode(EXIT_SUCCESS), "");
}

void SetFlag(const std::string& name, bool value) {
  for (const ProviderFlag& flag : ProviderFlags()) {
    if (flag.name == name) {
      *std::get<bool*>(flag.value) = value;
      return;
    }
  }
  ADD_FAILURE() << "no flag " << name;
}

/// "value (origin)" by name.
std::map<std::string, std::string> Settings() {
  std::map<std::string, std::string> result;
  for (const RuntimeSetting& setting : Guard().Settings())
    result[setting.name] = setting.value + " (" + setting.origin + ")";
  return result;
}

TEST(MacaProvider, IsRegisteredByLinkingIt) {
  EXPECT_EQ(core::GetPrivateUse1Backend().name, "maca");
  EXPECT_EQ(core::GetPrivateUse1Backend().default_autocast_dtype, DataType::kBFloat16);
  EXPECT_EQ(kMaca.ToString(), "maca:0");
  maca::RegisterBackend();
}

TEST(MacaProvider, HasAKernelForEveryOp) {
  for (int i = 0; i < kNumOps; ++i) {
    const auto op = static_cast<OpId>(i);
    EXPECT_TRUE(HasKernel(DeviceType::kPrivateUse1, op)) << GetOpInfo(op).name;
  }
  EXPECT_THAT(KernelLibrary(DeviceType::kPrivateUse1, OpId::kGemm), HasSubstr("mcBLAS"));
}

TEST(MacaPolicyDeathTest, TheWorkaroundsAreTheDefault) {
  With({}, [] {
    EXPECT_EQ(Settings(), (std::map<std::string, std::string>{
                              {"maca_multithread_workarounds", "true (default)"},
                              {"maca_retain_async_pool", "false (default)"},
                              {"MACA_LAUNCH_BLOCKING", "1 (workaround)"},
                              {"MCCL_P2P_DISABLE", "unset (default)"},
                              {"INFINI_MCCL_ALLREDUCE_SEGMENT_MB", "160 (default)"},
                              {"INFINI_MACA_GEMM_FP64_ACCUM", "0 (default)"},
                          }));
    EXPECT_STREQ(std::getenv("MACA_LAUNCH_BLOCKING"), "1");
  });
}

TEST(MacaPolicyDeathTest, WhatTheUserSetStays) {
  With({{"MACA_LAUNCH_BLOCKING", "0"},
        {"MCCL_P2P_DISABLE", "1"},
        {"INFINI_MCCL_ALLREDUCE_SEGMENT_MB", "0"}},
       [] {
         auto settings = Settings();
         EXPECT_EQ(settings["MACA_LAUNCH_BLOCKING"], "0 (environment)");
         EXPECT_EQ(settings["MCCL_P2P_DISABLE"], "1 (environment)");
         EXPECT_EQ(settings["INFINI_MCCL_ALLREDUCE_SEGMENT_MB"], "0 (environment)");
         EXPECT_STREQ(std::getenv("MACA_LAUNCH_BLOCKING"), "0");
       });
}

TEST(MacaPolicyDeathTest, WithoutTheWorkaroundsLaunchesDoNotBlock) {
  With({}, [] {
    SetFlag("maca_multithread_workarounds", false);
    auto settings = Settings();
    EXPECT_EQ(settings["maca_multithread_workarounds"], "false (flag)");
    EXPECT_EQ(settings["MACA_LAUNCH_BLOCKING"], "unset (default)");
    EXPECT_EQ(std::getenv("MACA_LAUNCH_BLOCKING"), nullptr);
  });
}

TEST(MacaPolicyDeathTest, IsReadOnceBeforeTheFirstUse) {
  With({}, [] {
    EXPECT_EQ(Settings()["maca_multithread_workarounds"], "true (default)");
    SetFlag("maca_multithread_workarounds", false);
    EXPECT_EQ(Settings()["maca_multithread_workarounds"], "true (default)");
  });
}

TEST(MacaPolicyDeathTest, RefusesWhatItDoesNotUnderstand) {
  for (const char* value : {"-1", "4097", "many", "1.5"}) {
    With({{"INFINI_MCCL_ALLREDUCE_SEGMENT_MB", value}}, [&] {
      EXPECT_THAT([] { Guard(); },
                  ThrowsMessage<Error>(
                      HasSubstr("INFINI_MCCL_ALLREDUCE_SEGMENT_MB: expected an integer from 0 to "
                                "4096, got '" +
                                std::string(value) + "'")));
    });
  }
  With({{"INFINI_MACA_GEMM_FP64_ACCUM", "yes"}}, [] {
    EXPECT_THAT([] { Guard(); }, ThrowsMessage<Error>(HasSubstr("expected 0 or 1, got 'yes'")));
  });
}

/// Bytes that the provider holds most, of 1 MiB beside what it holds anyway.
void CheckPeaks(bool workarounds) {
  With({}, [=] {
    SetFlag("maca_multithread_workarounds", workarounds);
    constexpr std::size_t kBytes = 1 << 20;
    void* kept = Guard().Allocate(kBytes);
    void* freed = Guard().Allocate(3 * kBytes);
    Guard().Free(freed);
    EXPECT_GE(maca::GetMemoryPeaks(0).used, 4 * kBytes);
    EXPECT_GE(maca::GetMemoryPeaks(0).reserved, maca::GetMemoryPeaks(0).used);
    Guard().SynchronizeDevice();
    maca::ResetMemoryPeaks(0);
    EXPECT_GE(maca::GetMemoryPeaks(0).used, kBytes);
    EXPECT_LT(maca::GetMemoryPeaks(0).used, 4 * kBytes);
    Guard().Free(kept);
    EXPECT_EQ(Guard().Allocate(0), nullptr);
    EXPECT_THAT([] { maca::GetMemoryPeaks(99); }, ThrowsMessage<Error>(HasSubstr("InvalidDevice")));
  });
}

TEST(MacaMemoryDeathTest, SynchronousAllocationsAreCounted) {
  CheckPeaks(true);
}

TEST(MacaMemoryDeathTest, ThePoolTellsItsPeaks) {
  CheckPeaks(false);
}

/// Whether threads that upload and allocate at once come to harm where the SDK does not stand it.
bool UploadsFail() {
  constexpr int kThreads = 4, kRounds = 20;
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      try {
        const std::vector<float> values(1024, 1.0f);
        for (int i = 0; i < kRounds; ++i) {
          void* memory = Guard().Allocate(4096);
          Guard().CopyAsync(memory, values.data(), 4096, CopyKind::kHostToDevice, nullptr);
          Guard().SynchronizeStream(nullptr);
          Guard().Free(memory);
        }
      } catch (const Error&) {
        failed = true;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  return failed;
}

// MACA_STANDIN_FAULTS=threads makes the stand-in SDK fail as the hardware does. Another SDK does
// not know it, and then there is nothing to exclude.
TEST(MacaThreadsDeathTest, TheWorkaroundsExcludeTheRace) {
  With({{"MACA_STANDIN_FAULTS", "threads"}}, [] { EXPECT_FALSE(UploadsFail()); });
}

TEST(MacaThreadsDeathTest, WithoutThemTheRaceIsThere) {
#ifndef INFINITRAIN_MACA_STANDIN
  GTEST_SKIP() << "only the stand-in SDK fails when it is asked to";
#endif
  With({{"MACA_STANDIN_FAULTS", "threads"}}, [] {
    SetFlag("maca_multithread_workarounds", false);
    EXPECT_TRUE(UploadsFail());
  });
}

/// On the device.
template <typename T>
Tensor Upload(const std::vector<T>& values, const Dims& shape, DataType dtype) {
  const Tensor result = Tensor::Empty(shape, dtype, kMaca);
  result.CopyFromHost(values.data(), result.nbytes());
  return result;
}

/// Products of a row of numbers, and of its transpose where `k_grouped`, with ones: 2^24 + 1 - 2^24
/// in float32 sums is 0, or 1 where the order is lucky; in float64 it is 1.
template <typename Op>
float ProductWithCancellation() {
  constexpr int kDepth = 64;
  std::vector<float> row(kDepth, 0.0f), ones(kDepth, 1.0f);
  row[0] = 16777216.0f;
  row[1] = 1.0f;
  row[kDepth - 1] = -16777216.0f;
  constexpr auto kType = DataType::kFloat32;
  const Tensor a = Upload(row, {1, kDepth}, kType);
  const Tensor b = Upload(ones, {kDepth, 1}, kType);
  Tensor out = Tensor::Empty({1, 1}, kType, kMaca);
  if constexpr (std::is_same_v<Op, op::Gemm>) {
    Call<op::Gemm>(out, a, b, Tensor(), false);
  } else if constexpr (std::is_same_v<Op, op::GroupedGemm>) {
    const Tensor counts = Upload<std::int64_t>({1}, {1}, DataType::kInt64);
    Call<op::GroupedGemm>(out, a, Upload(ones, {1, kDepth, 1}, kType), counts, false);
  } else {
    const Tensor counts = Upload<std::int64_t>({kDepth}, {1}, DataType::kInt64);
    Tensor matrices = Tensor::Empty({1, 1, 1}, kType, kMaca);
    Call<op::KGroupedGemm>(matrices, a, b, counts, false);
    return static_cast<float>(matrices.ToVector<float>()[0]);
  }
  return static_cast<float>(out.Item());
}

TEST(MacaGemmDeathTest, SumsInFloat64WhereAskedTo) {
  With({{"INFINI_MACA_GEMM_FP64_ACCUM", "1"}}, [] {
    EXPECT_EQ(ProductWithCancellation<op::Gemm>(), 1.0f);
    EXPECT_EQ(ProductWithCancellation<op::GroupedGemm>(), 1.0f);
    EXPECT_EQ(ProductWithCancellation<op::KGroupedGemm>(), 1.0f);
  });
}

TEST(MacaLaunchDeathTest, IsNotBlamedForAnOlderError) {
  With({}, [] {
    Tensor x = Tensor::Empty({3}, DataType::kFloat32, kMaca);
    // Somebody frees what the SDK never gave, and does not ask what came of it.
    const auto free = reinterpret_cast<int (*)(void*)>(dlsym(RTLD_DEFAULT, "mcFree"));
    ASSERT_NE(free, nullptr);
    EXPECT_NE(free(&x), 0);
    Call<op::Fill>(x, Scalar(2.0));
    EXPECT_EQ(x.ToVector<float>(), (std::vector<float>{2, 2, 2}));
  });
}

TEST(MacaCcl, IsMcclOrSaysWhatIsMissing) {
  parallel::Ccl& ccl = parallel::GetCcl(DeviceType::kPrivateUse1);
#ifdef INFINITRAIN_MACA_WITH_MCCL
  EXPECT_THAT(ccl.Name(), HasSubstr("MCCL"));
#else
  EXPECT_THAT([&] { ccl.CreateUniqueId(); },
              ThrowsMessage<Error>(HasSubstr("configure with INFINITRAIN_MACA_WITH_MCCL=ON")));
#endif
}

}  // namespace
}  // namespace infini_train
