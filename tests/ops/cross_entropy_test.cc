#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectEqual;
using test::ExpectSameBits;
using test::kFloatingTypes;
using test::kManyRows;
using test::kRowLengths;
using test::Layout;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::int64_t kIgnore = -100;

struct Shape {
  std::int64_t rows;
  std::int64_t classes;
};

// One class, odd sizes, rows of several blocks of a sum, no rows.
constexpr Shape kShapes[] = {{1, 1}, {5, 3}, {7, 33}, {3, 2500}, {0, 4}};

/// exp and log count as 4 operations; sums are of at most 64 terms by lanes.
constexpr double kOperations = 80;

/// Logits in a wide range, and targets of which each third is ignored.
struct Case {
  Case(Device device, DataType dtype, DataType index_type, Shape shape)
      : rows(shape.rows), classes(shape.classes) {
    logits = MakeTensor(device, dtype, {rows, classes}, RandomValues(rows * classes, -12, 12, 1));
    values = ToDoubles(logits);
    for (std::int64_t i = 0; i < rows; ++i)
      target_values.push_back(i % 3 == 1 ? kIgnore : (i * 7 + 1) % classes);
    targets = MakeTensor(device, index_type, {rows},
                         std::vector<double>(target_values.begin(), target_values.end()));
    for (std::int64_t i = 0; i < rows; ++i) {
      double largest = -std::numeric_limits<double>::infinity();
      for (std::int64_t j = 0; j < classes; ++j)
        largest = std::fmax(largest, At(i, j));
      long double sum = 0;
      for (std::int64_t j = 0; j < classes; ++j)
        sum += std::exp(At(i, j) - largest);
      lse.push_back(largest + static_cast<double>(std::log(sum)));
      const std::int64_t target = target_values[static_cast<std::size_t>(i)];
      losses.push_back(target == kIgnore ? 0.0 : lse.back() - At(i, target));
    }
  }

  double At(std::int64_t row, std::int64_t j) const {
    return values[static_cast<std::size_t>(row * classes + j)];
  }

  std::int64_t rows;
  std::int64_t classes;
  Tensor logits, targets;
  std::vector<double> values;
  std::vector<std::int64_t> target_values;
  std::vector<double> lse, losses;
};

class CrossEntropyTest : public DeviceTest {
 protected:
  template <typename Body>
  static void ForEachCase(const Body& body) {
    for (const DataType dtype : kFloatingTypes) {
      for (const DataType index_type : {DataType::kInt64, DataType::kInt32}) {
        for (const Shape& shape : kShapes) {
          SCOPED_TRACE(testing::Message() << ToString(dtype) << ", " << ToString(index_type) << ", "
                                          << shape.rows << " x " << shape.classes);
          body(Case(device(), dtype, index_type, shape), dtype,
               PromoteTypes(dtype, DataType::kFloat32));
        }
      }
    }
  }
};

TEST_P(CrossEntropyTest, LossesAndLogSumExp) {
  ForEachCase([](const Case& c, DataType, DataType stat) {
    Tensor losses = MakeOutput(device(), stat, {c.rows});
    Tensor lse = MakeOutput(device(), stat, {c.rows});
    Call<op::CrossEntropy>(losses, lse, c.logits, c.targets, kIgnore);
    ExpectClose(losses, c.losses, {.operations = kOperations, .scale = 24});
    ExpectClose(lse, c.lse, {.operations = kOperations, .scale = 24});
  });
}

TEST_P(CrossEntropyTest, Backward) {
  ForEachCase([](const Case& c, DataType dtype, DataType stat) {
    const Tensor lse = MakeTensor(device(), stat, {c.rows}, c.lse);
    const Tensor grad_losses = MakeTensor(device(), stat, {c.rows}, RandomValues(c.rows, -2, 2, 3),
                                          test::Layout::kStepped);
    const std::vector<double> grads = ToDoubles(grad_losses);
    std::vector<double> expected;
    std::vector<double> scales;
    for (std::int64_t i = 0; i < c.rows; ++i) {
      const auto row = static_cast<std::size_t>(i);
      for (std::int64_t j = 0; j < c.classes; ++j) {
        const bool ignored = c.target_values[row] == kIgnore;
        const double p = std::exp(c.At(i, j) - c.lse[row]);
        const double hot = j == c.target_values[row] ? 1.0 : 0.0;
        expected.push_back(ignored ? 0.0 : (p - hot) * grads[row]);
        scales.push_back(ignored ? 0.0 : std::fmax(p, hot) * std::fabs(grads[row]));
      }
    }
    Tensor grad_logits = MakeOutput(device(), dtype, {c.rows, c.classes});
    Call<op::CrossEntropyBackward>(grad_logits, grad_losses, c.logits, lse, c.targets, kIgnore);
    ExpectClose(grad_logits, expected, {.operations = kOperations}, scales);
    Tensor in_place = c.logits;
    Call<op::CrossEntropyBackward>(in_place, grad_losses, c.logits, lse, c.targets, kIgnore);
    ExpectSameBits(in_place, grad_logits);
  });
}

TEST_P(CrossEntropyTest, VocabulariesOfEverySizeAndAlignment) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t classes : kRowLengths) {
      for (const Layout layout : {Layout::kContiguous, Layout::kShifted}) {
        SCOPED_TRACE(testing::Message()
                     << ToString(dtype) << " " << classes << " " << testing::PrintToString(layout));
        Case c(device(), dtype, DataType::kInt64, {3, classes});
        c.logits = MakeTensor(device(), dtype, {3, classes}, c.values, layout);
        Tensor losses = MakeOutput(device(), DataType::kFloat32, {3});
        Tensor lse = MakeOutput(device(), DataType::kFloat32, {3});
        Call<op::CrossEntropy>(losses, lse, c.logits, c.targets, kIgnore);
        ExpectClose(losses, c.losses, {.operations = kOperations, .scale = 24});
        ExpectClose(lse, c.lse, {.operations = kOperations, .scale = 24});

        // lse is rounded: as much as its last bit, probabilities may be off.
        const std::vector<double> stored = ToDoubles(lse);
        std::vector<double> expected;
        std::vector<double> scales;
        for (std::int64_t i = 0; i < 3; ++i) {
          for (std::int64_t j = 0; j < classes; ++j) {
            const std::int64_t target = c.target_values[static_cast<std::size_t>(i)];
            const double p = std::exp(c.At(i, j) - stored[static_cast<std::size_t>(i)]);
            const double hot = j == target ? 1.0 : 0.0;
            expected.push_back(target == kIgnore ? 0.0 : p - hot);
            scales.push_back(target == kIgnore ? 0.0 : 12 * std::fmax(p, hot));
          }
        }
        const Tensor ones = MakeTensor(device(), DataType::kFloat32, {3}, {1, 1, 1});
        Tensor grad = MakeOutput(device(), dtype, {3, classes});
        Call<op::CrossEntropyBackward>(grad, ones, c.logits, lse, c.targets, kIgnore);
        ExpectClose(grad, expected, {.operations = 16}, scales);
      }
    }
  }
}

TEST_P(CrossEntropyTest, MoreRowsThanAGridHasBlocks) {
  // Several short rows share a block.
  constexpr std::int64_t kRows = kManyRows * 4;
  std::vector<std::int32_t> classes(kRows);
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = static_cast<std::int32_t>(i % 2);
  const Tensor targets = Tensor::Empty({kRows}, DataType::kInt32, device());
  targets.CopyFromHost(classes.data(), classes.size() * sizeof(std::int32_t));
  const Tensor logits =
      MakeTensor(device(), DataType::kFloat32, {kRows, 2}, std::vector<double>(2 * kRows, 3.0));
  const Tensor lse = MakeTensor(device(), DataType::kFloat32, {kRows},
                                std::vector<double>(kRows, 3.0 + std::log(2.0)));
  Tensor grad = MakeOutput(device(), DataType::kFloat32, {kRows, 2});
  Call<op::CrossEntropyBackward>(grad, lse, logits, lse, targets, kIgnore);
  const std::vector<float> grads = grad.ToVector<float>();
  const float half = 1.5f + std::log(2.0f) / 2;
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const float expected = i % 2 == i / 2 % 2 ? -half : half;
    wrong += !(std::fabs(grads[i] - expected) < 1e-6f);
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(CrossEntropyTest, MeanOverTargets) {
  ForEachCase([](const Case& c, DataType, DataType stat) {
    double sum = 0;
    double count = 0;
    const Tensor losses = MakeTensor(device(), stat, {c.rows}, c.losses);
    const std::vector<double> values = ToDoubles(losses);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      count += c.target_values[i] == kIgnore ? 0 : 1;
    }
    Tensor loss = MakeOutput(device(), stat, {});
    Tensor inverse_count = MakeOutput(device(), stat, {});
    Call<op::MeanOverTargets>(loss, inverse_count, losses, c.targets, kIgnore);
    ExpectClose(inverse_count, {1 / std::fmax(1, count)}, {});
    ExpectClose(loss, {sum / std::fmax(1, count)}, {.operations = 4});
  });
}

// A float32 sum would lose the last digits.
TEST_P(CrossEntropyTest, MeanIsAccumulatedInDouble) {
  constexpr std::int64_t kRows = 1'000'000;
  const auto count = static_cast<std::size_t>(kRows);
  const Tensor losses =
      MakeTensor(device(), DataType::kFloat32, {kRows}, std::vector<double>(count, 1.0 / 3));
  const Tensor targets =
      MakeTensor(device(), DataType::kInt32, {kRows}, std::vector<double>(count, 1));
  Tensor loss = MakeOutput(device(), DataType::kFloat32, {});
  Tensor inverse_count = MakeOutput(device(), DataType::kFloat32, {});
  Call<op::MeanOverTargets>(loss, inverse_count, losses, targets, kIgnore);
  ExpectClose(loss, {1.0 / 3}, {.operations = 2});
  ExpectClose(inverse_count, {1.0 / kRows}, {});
}

TEST_P(CrossEntropyTest, IgnoredRowsPoisonNothing) {
  for (const DataType dtype : kFloatingTypes) {
    SCOPED_TRACE(ToString(dtype));
    const DataType stat = PromoteTypes(dtype, DataType::kFloat32);
    const Tensor logits = MakeTensor(device(), dtype, {2, 3}, {1, 2, 3, 0, 0, 0});
    Tensor losses = MakeOutput(device(), stat, {2});
    Tensor lse = MakeOutput(device(), stat, {2});
    Tensor loss = MakeOutput(device(), stat, {});
    Tensor inverse_count = MakeOutput(device(), stat, {});
    Tensor grad = MakeOutput(device(), dtype, {2, 3});

    const Tensor some = MakeTensor(device(), DataType::kInt64, {2}, {2, kIgnore});
    Call<op::CrossEntropy>(losses, lse, logits, some, kIgnore);
    Call<op::MeanOverTargets>(loss, inverse_count, losses, some, kIgnore);
    ExpectEqual(inverse_count, {1});
    ExpectClose(loss, {0.4076059644443803}, {.operations = 16, .scale = 3});
    Call<op::CrossEntropyBackward>(grad, MakeTensor(device(), stat, {2}, {1, std::nan("")}), logits,
                                   lse, some, kIgnore);
    ExpectClose(grad, {0.09003057317038046, 0.24472847105479767, -0.33475904422517816, 0, 0, 0},
                {.operations = 16, .scale = 1}, {1, 1, 1, 0, 0, 0});

    const Tensor none = MakeTensor(device(), DataType::kInt64, {2}, {kIgnore, kIgnore});
    Call<op::CrossEntropy>(losses, lse, logits, none, kIgnore);
    Call<op::MeanOverTargets>(loss, inverse_count, losses, none, kIgnore);
    ExpectEqual(loss, {0});
    ExpectEqual(inverse_count, {1});
    Call<op::CrossEntropyBackward>(grad, MakeTensor(device(), stat, {2}, {1, 1}), logits, lse, none,
                                   kIgnore);
    ExpectEqual(grad, {0, 0, 0, 0, 0, 0});
  }
}

TEST_P(CrossEntropyTest, IgnoreIndexMayBeAClass) {
  const Tensor logits = MakeTensor(device(), DataType::kFloat32, {2, 2}, {3, 1, 3, 1});
  const Tensor targets = MakeTensor(device(), DataType::kInt64, {2}, {0, 1});
  Tensor losses = MakeOutput(device(), DataType::kFloat32, {2});
  Tensor lse = MakeOutput(device(), DataType::kFloat32, {2});
  Call<op::CrossEntropy>(losses, lse, logits, targets, 0);
  ExpectClose(losses, {0, 2 + std::log1p(std::exp(-2.0))}, {.operations = 16});
}

TEST_P(CrossEntropyTest, ExtremeLogits) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor logits = MakeTensor(device(), DataType::kFloat32, {3, 3},
                                   {1e30, 0, -1e30, -infinity, 4, 4, 100, 100, 100});
  const Tensor targets = MakeTensor(device(), DataType::kInt64, {3}, {0, 1, 2});
  Tensor losses = MakeOutput(device(), DataType::kFloat32, {3});
  Tensor lse = MakeOutput(device(), DataType::kFloat32, {3});
  Call<op::CrossEntropy>(losses, lse, logits, targets, kIgnore);
  ExpectClose(losses, {0, std::log(2.0), std::log(3.0)}, {.operations = 4});
  ExpectClose(lse, {1e30, 4 + std::log(2.0), 100 + std::log(3.0)}, {.operations = 4});
}

TEST_P(CrossEntropyTest, WrongTargetIsNamed) {
  if (!device().is_cpu()) GTEST_SKIP() << "only the CPU can tell at once";
  const Tensor logits = MakeTensor(device(), DataType::kFloat32, {2, 3}, {1, 2, 3, 0, 0, 0});
  Tensor losses = MakeOutput(device(), DataType::kFloat32, {2});
  Tensor lse = MakeOutput(device(), DataType::kFloat32, {2});
  for (const int wrong : {7, 3, -1}) {
    const Tensor targets = MakeTensor(device(), DataType::kInt64, {2}, {2.0, 1.0 * wrong});
    const std::string text = "target " + std::to_string(wrong) + " at position 1";
    EXPECT_THAT([&] { Call<op::CrossEntropy>(losses, lse, logits, targets, kIgnore); },
                ThrowsMessage<Error>(HasSubstr(text)));
    Tensor grad = MakeOutput(device(), DataType::kFloat32, {2, 3});
    EXPECT_THAT(
        [&] { Call<op::CrossEntropyBackward>(grad, losses, logits, lse, targets, kIgnore); },
        ThrowsMessage<Error>(HasSubstr(text)));
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(CrossEntropyTest);

}  // namespace
}  // namespace infini_train
