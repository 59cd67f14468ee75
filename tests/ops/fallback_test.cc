#include "infini_train/ops/fallback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

using test::InChildProcess;
using test::MockRuntime;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

const Device kMock(DeviceType::kPrivateUse1, 1);

/// Runs `body` in a process with a provider that has a runtime and no kernels.
template <typename Body>
void WithoutKernels(const Body& body) {
  InChildProcess([&] {
    test::RegisterMockProvider();
    body();
    EXPECT_EQ(MockRuntime::current_device, 0) << "the current device was not restored";
  });
}

Tensor OnMock(const std::vector<float>& values, const Dims& shape) {
  const Tensor tensor = Tensor::Empty(shape, DataType::kFloat32, kMock);
  tensor.CopyFromHost(values.data(), tensor.nbytes());
  return tensor;
}

std::vector<float> Values(const Tensor& tensor) {
  return tensor.ToVector<float>();
}

TEST(Fallback, RunsTheKernelOfTheCpuAndCountsIt) {
  WithoutKernels([] {
    const Tensor a = OnMock({1, 2, 3}, {3});
    const Tensor b = OnMock({10, 20, 30}, {3});
    Tensor out = OnMock({0, 0, 0}, {3});
    const std::uint64_t version = out.version();
    EXPECT_EQ(FallbackCount(OpId::kAdd), 0u);
    Call<op::Add>(out, a, b);
    Call<op::Add>(out, out, b);
    EXPECT_THAT(Values(out), ElementsAreArray({21, 42, 63}));
    EXPECT_EQ(FallbackCount(OpId::kAdd), 2u);
    EXPECT_EQ(FallbackCount(OpId::kSub), 0u);
    EXPECT_EQ(out.version(), version + 2);
    EXPECT_EQ(a.version(), 1u) << "an input was written";
    ResetFallbackCounts();
    EXPECT_EQ(FallbackCount(OpId::kAdd), 0u);
  });
}

TEST(Fallback, FetchesTheBaseOfRandomNumbers) {
  WithoutKernels([] {
    const Tensor base = Tensor::Empty({1}, DataType::kInt64, kMock);
    const std::int64_t value = 4;
    base.CopyFromHost(&value, sizeof(value));
    const Generator::State relative = {1, 2, static_cast<const std::uint64_t*>(base.raw_data())};
    const Generator::State absolute = {1, 6};
    const auto expect_same = [&](const Dims& shape, const auto& call) {
      Tensor from_base = OnMock(std::vector<float>(8, 0.0f), shape);
      Tensor expected = OnMock(std::vector<float>(8, 0.0f), shape);
      call(from_base, relative);
      call(expected, absolute);
      EXPECT_EQ(Values(from_base), Values(expected));
    };
    expect_same({8}, [](Tensor& out, Generator::State state) {
      Call<op::RandomUniform>(out, 0.0, 1.0, state);
    });
    const Tensor x = OnMock({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 4, 2});
    expect_same({1, 1, 4, 2}, [&](Tensor& out, Generator::State state) {
      Tensor lse = OnMock({0, 0, 0, 0}, {1, 1, 4});
      Call<op::Attention>(out, lse, x, x, x, Tensor(),
                          AttentionParams{.scale = 1, .dropout_p = 0.5, .dropout_state = state});
    });
  });
}

TEST(Fallback, WarnsOnceForEachOpOnOneLine) {
  WithoutKernels([] {
    const Tensor x = OnMock({1, 2}, {2});
    Tensor out = Tensor::EmptyLike(x);
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i)
      Call<op::Neg>(out, x);
    Call<op::Exp>(out, x);
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
    EXPECT_THAT(text, HasSubstr("op Neg has no kernel for mock"));
    EXPECT_THAT(text, HasSubstr("op Exp has no kernel for mock"));
    EXPECT_THAT(text, HasSubstr("INFINI_TRAIN_FALLBACK"));
  });
}

TEST(Fallback, IsSilentOrForbiddenByTheEnvironment) {
  WithoutKernels([] {
    ::setenv("INFINI_TRAIN_FALLBACK", "silent", 1);
    const Tensor x = OnMock({1, 2}, {2});
    Tensor out = Tensor::EmptyLike(x);
    ::testing::internal::CaptureStderr();
    Call<op::Neg>(out, x);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_THAT(Values(out), ElementsAreArray({-1, -2}));
  });
  WithoutKernels([] {
    ::setenv("INFINI_TRAIN_FALLBACK", "error", 1);
    const Tensor x = OnMock({1, 2}, {2});
    Tensor out = OnMock({5, 6}, {2});
    EXPECT_ERROR(Call<op::Neg>(out, x), "op Neg has no kernel for mock");
    EXPECT_ERROR(Call<op::Neg>(out, x), "INFINI_TRAIN_FALLBACK=error");
    EXPECT_EQ(FallbackCount(OpId::kNeg), 0u);
    EXPECT_THAT(Values(out), ElementsAreArray({5, 6}));
    SetFallbackMode(FallbackMode::kSilent);
    Call<op::Neg>(out, x);
    EXPECT_THAT(Values(out), ElementsAreArray({-1, -2}));
  });
  WithoutKernels([] {
    ::setenv("INFINI_TRAIN_FALLBACK", "loud", 1);
    const Tensor x = OnMock({1, 2}, {2});
    Tensor out = Tensor::EmptyLike(x);
    EXPECT_ERROR(Call<op::Neg>(out, x),
                 "INFINI_TRAIN_FALLBACK: expected warn, error or silent, got 'loud'");
  });
}

TEST(Fallback, IsRefusedInsideAGraphCapture) {
  WithoutKernels([] {
    const Tensor x = OnMock({1, 2}, {2});
    Tensor out = OnMock({5, 6}, {2});
    MockRuntime::capturing = true;
    EXPECT_ERROR(Call<op::Softmax>(out, x), "op Softmax has no kernel for mock");
    EXPECT_ERROR(Call<op::Softmax>(out, x), "captured on mock:1");
    MockRuntime::capturing = false;
    EXPECT_EQ(FallbackCount(OpId::kSoftmax), 0u);
    EXPECT_THAT(Values(out), ElementsAreArray({5, 6}));
  });
}

TEST(Fallback, NeedsAKernelOnTheCpuAndNoDuplicateOnTheDevice) {
  WithoutKernels([] {
    const auto kernel = +[](const KernelContext&, Tensor&, const Tensor&) {};
    for (int line = 1; line <= 2; ++line) {
      detail::RegisterKernel(DeviceType::kPrivateUse1, OpId::kNeg,
                             reinterpret_cast<detail::AnyKernel>(kernel), "twice.cc", line);
    }
    const Tensor x = OnMock({1, 2}, {2});
    Tensor out = Tensor::EmptyLike(x);
    EXPECT_ERROR(Call<op::Neg>(out, x), "two kernels for mock: twice.cc:1 and twice.cc:2");
  });
}

TEST(Fallback, KeepsHowArgumentsOverlap) {
  WithoutKernels([] {
    // Two slices of one storage are written, and one that overlaps both is read.
    const Tensor base = OnMock({1, 2, 3, 4, 5, 6, 7, 8}, {8});
    const Tensor factor = OnMock({10}, {});
    std::vector<Tensor> slices = {base.AsStrided({2}, {1}, 1), base.AsStrided({2}, {1}, 5)};
    Call<op::ScaleAll>(MutableTensorList(slices), factor);
    EXPECT_THAT(Values(base), ElementsAreArray({1, 20, 30, 4, 5, 60, 70, 8}));

    // Interleaved: the columns of one matrix, one read and one written.
    const Tensor matrix = OnMock({1, 2, 3, 4, 5, 6}, {3, 2});
    Tensor left = matrix.AsStrided({3}, {2}, 0);
    const Tensor right = matrix.AsStrided({3}, {2}, 1);
    Call<op::Add>(left, left, right);
    EXPECT_THAT(Values(matrix), ElementsAreArray({3, 2, 7, 4, 11, 6}));

    // The same tensor is output and both inputs; the list holds one tensor twice.
    Tensor x = OnMock({1, 2, 3}, {3});
    Call<op::Mul>(x, x, x);
    EXPECT_THAT(Values(x), ElementsAreArray({1, 4, 9}));
    std::vector<Tensor> twice = {x, x};
    Call<op::ScaleAll>(MutableTensorList(twice), factor);
    EXPECT_THAT(Values(x), ElementsAreArray({100, 400, 900}));
  });
}

TEST(Fallback, TakesExpandedReversedUndefinedAndEmptyArguments) {
  WithoutKernels([] {
    const Tensor row = OnMock({1, 2, 3}, {3});
    Tensor out = OnMock({0, 0, 0, 0, 0, 0}, {2, 3});
    Call<op::Add>(out, row.AsStrided({2, 3}, {0, 1}, 0), row.AsStrided({2, 3}, {0, -1}, 2));
    EXPECT_THAT(Values(out), ElementsAreArray({4, 4, 4, 4, 4, 4}));

    Tensor product = Tensor::Empty({1, 1}, DataType::kFloat32, kMock);
    Call<op::Gemm>(product, row.AsStrided({1, 3}, {3, 1}, 0), row.AsStrided({3, 1}, {1, 3}, 0),
                   Tensor(), false);
    EXPECT_EQ(product.Item(), 14);

    Tensor nothing = Tensor::Empty({0, 4}, DataType::kFloat32, kMock);
    EXPECT_NO_THROW(Call<op::Neg>(nothing, Tensor::EmptyLike(nothing)));
    Tensor sum = OnMock({7}, {1, 1});
    Call<op::Sum>(sum, Tensor::Empty({0, 0}, DataType::kFloat32, kMock), Dims{0, 1});
    EXPECT_EQ(sum.Item(), 0);
  });
}

TEST(Fallback, LeavesMemoryBesideTheWrittenArgumentsAlone) {
  WithoutKernels([] {
    const Tensor base = OnMock({1, 2, 3, 4, 5, 6, 7, 8}, {8});
    Tensor out = base.AsStrided({2}, {2}, 3);
    Call<op::Fill>(out, 0);
    EXPECT_THAT(Values(base), ElementsAreArray({1, 2, 3, 0, 5, 0, 7, 8}));
  });
}

TEST(Fallback, PassesErrorsOnAndWritesNothingThen) {
  WithoutKernels([] {
    const Tensor weight = OnMock({1, 2, 3, 4}, {2, 2});
    const Tensor ids = Tensor::Empty({1}, DataType::kInt64, kMock);
    const std::int64_t beyond = 2;
    ids.CopyFromHost(&beyond, sizeof(beyond));
    Tensor out = OnMock({5, 6}, {1, 2});
    EXPECT_ERROR(Call<op::Embedding>(out, weight, ids), "2");
    EXPECT_THAT(Values(out), ElementsAreArray({5, 6}));
  });
}

TEST(Fallback, WorksOnTheCurrentStream) {
  WithoutKernels([] {
    DeviceGuardImpl& impl = GetDeviceGuardImpl(DeviceType::kPrivateUse1);
    const StreamHandle stream = impl.CreateStream(0);
    const StreamGuard guard(kMock, stream);
    Tensor x = OnMock({1, 2}, {2});
    MockRuntime::last_stream = nullptr;
    Call<op::Neg>(x, x);
    EXPECT_EQ(MockRuntime::last_stream, stream);
    impl.DestroyStream(stream);
  });
}

/// A kernel that takes float32 only.
void Float32Neg(const KernelContext& context, Tensor& out, const Tensor& x) {
  if (x.dtype() != DataType::kFloat32) return CallOnCpu<op::Neg>(context, out, x);
  const float answer[] = {42, 42};
  out.CopyFromHost(answer, sizeof(answer));
}

TEST(Fallback, ServesAKernelForWhatItDoesNotTake) {
  WithoutKernels([] {
    detail::KernelRegistrar<op::Neg, &Float32Neg>(DeviceType::kPrivateUse1, "neg.cc", 1);
    Tensor floats = OnMock({1, 2}, {2});
    Call<op::Neg>(floats, floats);
    EXPECT_THAT(Values(floats), ElementsAreArray({42, 42}));
    EXPECT_EQ(FallbackCount(OpId::kNeg), 0u);

    const Tensor integers = Tensor::Empty({2}, DataType::kInt64, kMock);
    const std::int64_t values[] = {3, -4};
    integers.CopyFromHost(values, sizeof(values));
    Tensor out = Tensor::EmptyLike(integers);
    ::testing::internal::CaptureStderr();
    Call<op::Neg>(out, integers);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("the kernel of op Neg for mock does not take these arguments"));
    EXPECT_THAT(out.ToVector<std::int64_t>(), ElementsAreArray({-3, 4}));
    EXPECT_EQ(FallbackCount(OpId::kNeg), 1u);
  });
}

TEST(Fallback, IsSafeUnderThreads) {
  WithoutKernels([] {
    const Tensor shared = OnMock(std::vector<float>(100, 2), {100});
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        Tensor out = Tensor::EmptyLike(shared);
        for (int step = 0; step < 20; ++step) {
          Call<op::MulScalar>(out, shared, static_cast<double>(i));
          EXPECT_THAT(Values(out), ::testing::Each(2.0f * static_cast<float>(i)));
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(FallbackCount(OpId::kMulScalar), 160u);
  });
}

/// Loss and gradients of a small network with views, broadcasting and in-place writes.
std::vector<std::vector<float>> LossAndGradients(Device device, bool autocast) {
  const auto leaf = [&](std::uint64_t seed, const Dims& shape) {
    const std::vector<double> values = test::RandomValues(Numel(shape), -1, 1, seed);
    return test::MakeTensor(device, DataType::kFloat32, shape, values).set_requires_grad();
  };
  const Tensor x = leaf(1, {4, 6});
  const Tensor weight = leaf(2, {8, 6});
  const Tensor bias = leaf(3, {8});
  Tensor loss;
  {
    const Autocast mixed(autocast ? std::optional(DataType::kBFloat16) : std::nullopt);
    const Tensor hidden = Gelu(Linear(x, weight, bias));
    const Tensor columns = Transpose(hidden, 0, 1);
    const Tensor weights = Softmax(To(Contiguous(columns), DataType::kFloat32), 1);
    loss = Sum(Mul(weights, To(columns, DataType::kFloat32)));
  }
  Backward(loss);
  std::vector<std::vector<float>> results;
  for (const Tensor& tensor : {loss, x.grad(), weight.grad(), bias.grad()}) {
    EXPECT_EQ(tensor.device(), device);
    results.push_back(tensor.ToVector<float>());
  }
  return results;
}

TEST(Fallback, GivesTheLossesAndGradientsOfTheCpu) {
  WithoutKernels([] {
    SetFallbackMode(FallbackMode::kSilent);
    for (const bool autocast : {false, true})
      EXPECT_EQ(LossAndGradients(kMock, autocast), LossAndGradients(Device(), autocast));
  });
}

}  // namespace
}  // namespace infini_train
