// Indices that name no element. The CPU refuses them before anything is written, with tests of its
// own. A device cannot tell at once: its kernels never form an address from such an index, but read
// NaN (0 where the type has none) and write nothing. A device that falls back refuses as the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectEqual;
using test::MakeOutput;
using test::MakeTensor;
using test::ToDoubles;

constexpr std::int64_t kIgnore = -100;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class OutOfRangeTest : public DeviceTest {
 protected:
  /// Runs `call`, or, where the op runs on the CPU, expects its error. Returns whether it ran.
  static bool RunsOrIsRefused(OpId op, const std::function<void()>& call) {
    if (!device().is_cpu() && HasKernel(device().type(), op)) {
      call();
      return true;
    }
    EXPECT_THROW(call(), Error);
    return false;
  }

  static Tensor Floats(const Dims& shape, const std::vector<double>& values) {
    return MakeTensor(device(), DataType::kFloat32, shape, values);
  }
  static Tensor Indices(const Dims& shape, const std::vector<double>& values) {
    return MakeTensor(device(), DataType::kInt64, shape, values);
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(OutOfRangeTest);

constexpr double kBad[] = {3, -1, 0x1p40, -0x1p62};

TEST_P(OutOfRangeTest, GatherAndIndexSelectReadNan) {
  const Tensor x = Floats({3, 2}, {1, 2, 3, 4, 5, 6});
  for (const double bad : kBad) {
    Tensor out = MakeOutput(device(), DataType::kFloat32, {2, 2});
    if (RunsOrIsRefused(OpId::kGather, [&] {
          Call<op::Gather>(out, x, Indices({2, 2}, {0, bad, 2, 1}), 0);
        })) {
      ExpectEqual(out, {1, kNan, 5, 4});
    }
    if (RunsOrIsRefused(OpId::kIndexSelect, [&] {
          Call<op::IndexSelect>(out, x, Indices({2}, {bad, 1}), 0);
        })) {
      ExpectEqual(out, {kNan, kNan, 3, 4});
    }
  }
}

TEST_P(OutOfRangeTest, ScatterAndIndexAddWriteNothing) {
  const Tensor src = Floats({2, 2}, {10, 20, 30, 40});
  for (const double bad : kBad) {
    const auto fresh = [] { return Floats({3, 2}, {1, 2, 3, 4, 5, 6}); };
    Tensor out = fresh();
    if (RunsOrIsRefused(OpId::kScatter, [&] {
          Call<op::Scatter>(out, Indices({2, 2}, {0, bad, 2, 1}), src, 0);
        })) {
      ExpectEqual(out, {10, 2, 3, 40, 30, 6});
    }
    out = fresh();
    if (RunsOrIsRefused(OpId::kScatterAdd, [&] {
          Call<op::ScatterAdd>(out, Indices({2, 2}, {0, bad, 2, 1}), src, 0);
        })) {
      ExpectEqual(out, {11, 2, 3, 44, 35, 6});
    }
    out = fresh();
    if (RunsOrIsRefused(OpId::kIndexAdd, [&] {
          Call<op::IndexAdd>(out, Indices({2}, {bad, 1}), src, 0);
        })) {
      ExpectEqual(out, {1, 2, 33, 44, 5, 6});
    }
  }
}

TEST_P(OutOfRangeTest, EmbeddingReadsNanAndItsGradientIsDropped) {
  for (const double bad : kBad) {
    const Tensor ids = Indices({3}, {1, bad, 0});
    Tensor out = MakeOutput(device(), DataType::kFloat32, {3, 2});
    if (RunsOrIsRefused(OpId::kEmbedding, [&] {
          Call<op::Embedding>(out, Floats({3, 2}, {1, 2, 3, 4, 5, 6}), ids);
        })) {
      ExpectEqual(out, {3, 4, kNan, kNan, 1, 2});
    }
    Tensor grad = Floats({3, 2}, {1, 1, 1, 1, 1, 1});
    if (RunsOrIsRefused(OpId::kEmbeddingBackward, [&] {
          Call<op::EmbeddingBackward>(grad, Floats({3, 2}, {10, 20, 30, 40, 50, 60}), ids);
        })) {
      ExpectEqual(grad, {51, 61, 11, 21, 1, 1});
    }
  }
}

TEST_P(OutOfRangeTest, ABadTargetGivesALossOfNan) {
  const Tensor logits = Floats({2, 3}, {0, 0, 0, 0, 0, 0});
  for (const double bad : kBad) {
    const Tensor targets = Indices({2}, {1, bad});
    Tensor losses = MakeOutput(device(), DataType::kFloat32, {2});
    Tensor lse = MakeOutput(device(), DataType::kFloat32, {2});
    if (RunsOrIsRefused(OpId::kCrossEntropy,
                        [&] { Call<op::CrossEntropy>(losses, lse, logits, targets, kIgnore); })) {
      const std::vector<double> values = ToDoubles(losses);
      EXPECT_NEAR(values[0], std::log(3.0), 1e-6);
      EXPECT_TRUE(std::isnan(values[1])) << values[1];
    }
    Tensor loss = MakeOutput(device(), DataType::kFloat32, {});
    Tensor none;
    if (RunsOrIsRefused(OpId::kLinearCrossEntropy, [&] {
          Call<op::LinearCrossEntropy>(loss, none, none, Floats({2, 1}, {1, 2}),
                                       Floats({3, 1}, {1, 2, 3}), targets, kIgnore, 1.0);
        })) {
      EXPECT_TRUE(std::isnan(loss.Item())) << loss.Item();
    }
  }
}

}  // namespace
}  // namespace infini_train
