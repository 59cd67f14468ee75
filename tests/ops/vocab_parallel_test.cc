// The shards of a vocabulary together give what one device with all of it gives.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectEqual;
using test::kFloatingTypes;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;

constexpr std::int64_t kIgnore = -100;

class VocabParallelTest : public DeviceTest {};

TEST_P(VocabParallelTest, ShardsGiveTheWhole) {
  constexpr std::int64_t kRows = 7;
  for (const DataType dtype : kFloatingTypes) {
    const DataType stat = dtype == DataType::kFloat64 ? dtype : DataType::kFloat32;
    for (const std::vector<std::int64_t>& extents :
         {std::vector<std::int64_t>{1, 1}, {33, 31, 64}, {1000, 1000}, {5, 50257}}) {
      std::int64_t classes = 0;
      for (const std::int64_t extent : extents)
        classes += extent;
      SCOPED_TRACE(testing::Message() << ToString(dtype) << ", " << classes << " classes");
      const std::vector<double> all = ToDoubles(
          MakeTensor({}, dtype, {kRows, classes}, RandomValues(kRows * classes, -9, 9, 1)));
      std::vector<double> target_values;
      for (std::int64_t i = 0; i < kRows; ++i)
        target_values.push_back(i == 2 ? kIgnore : static_cast<double>((i * 37) % classes));
      target_values.back() = static_cast<double>(classes - 1);
      const Tensor targets = MakeTensor(device(), DataType::kInt64, {kRows}, target_values);
      const std::vector<double> weights = RandomValues(kRows, 0.5, 1.5, 2);
      const Tensor grad_losses = MakeTensor(device(), stat, {kRows}, weights);

      // What the definition gives.
      std::vector<double> lse(kRows);
      for (std::int64_t i = 0; i < kRows; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < classes; ++j)
          sum += std::exp(all[static_cast<std::size_t>(i * classes + j)]);
        lse[static_cast<std::size_t>(i)] = std::log(sum);
      }
      const Tensor whole_lse = MakeTensor(device(), stat, {kRows}, lse);

      std::vector<double> shard_sum(kRows, 0.0);
      std::vector<double> found_target(kRows, 0.0);
      std::int64_t start = 0;
      for (const std::int64_t extent : extents) {
        std::vector<double> part;
        std::vector<double> gradient;
        for (std::int64_t i = 0; i < kRows; ++i) {
          const auto row = static_cast<std::size_t>(i);
          for (std::int64_t j = start; j < start + extent; ++j) {
            const double logit = all[static_cast<std::size_t>(i * classes + j)];
            part.push_back(logit);
            const double one_hot = target_values[row] == static_cast<double>(j) ? 1 : 0;
            gradient.push_back(target_values[row] == kIgnore
                                   ? 0
                                   : (std::exp(logit - lse[row]) - one_hot) * weights[row]);
          }
        }
        const Tensor logits = MakeTensor(device(), dtype, {kRows, extent}, part);
        Tensor target_logits = MakeOutput(device(), stat, {kRows});
        Tensor shard_lse = MakeOutput(device(), stat, {kRows});
        Call<op::VocabParallelCrossEntropy>(target_logits, shard_lse, logits, targets, start,
                                            kIgnore);
        const std::vector<double> lses = ToDoubles(shard_lse);
        const std::vector<double> logits_of_targets = ToDoubles(target_logits);
        for (std::size_t i = 0; i < kRows; ++i) {
          shard_sum[i] += std::exp(lses[i]);
          found_target[i] += logits_of_targets[i];
        }
        Tensor grad_logits = MakeOutput(device(), dtype, {kRows, extent});
        Call<op::VocabParallelCrossEntropyBackward>(grad_logits, grad_losses, logits, whole_lse,
                                                    targets, start, kIgnore);
        ExpectClose(grad_logits, gradient, {.operations = 40, .scale = 1.5});
        start += extent;
      }
      for (std::size_t i = 0; i < kRows; ++i) {
        EXPECT_NEAR(std::log(shard_sum[i]), lse[i], 1e-5 * std::abs(lse[i]) + 1e-6);
        const double expected = target_values[i] == kIgnore
                                    ? 0
                                    : all[i * static_cast<std::size_t>(classes) +
                                          static_cast<std::size_t>(target_values[i])];
        EXPECT_EQ(found_target[i], expected);
      }
    }
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(VocabParallelTest);

}  // namespace
}  // namespace infini_train
