#include "infini_train/trainer/step/router_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace infini_train::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

/// Two layers of four experts: 40 choices of 20 tokens, and none.
RouterReport Report() {
  const float sums[] = {2.125f, 10, 20, 0, 10, 25, 20, 0, 0, 0, 0, 0, 0};
  return MakeRouterReport(sums, 4);
}

TEST(RouterReport, HasSharesAndMeans) {
  const RouterReport report = Report();
  EXPECT_EQ(report.load_balancing_loss, 2.125);
  ASSERT_EQ(report.layers.size(), 2u);
  EXPECT_THAT(report.layers[0].load, ElementsAre(0.25, 0.5, 0, 0.25));
  EXPECT_EQ(report.layers[0].entropy, 1.25);
  EXPECT_EQ(report.layers[0].Imbalance(), 2.0);
  EXPECT_THAT(report.layers[1].load, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(report.layers[1].entropy, 0.0);
  EXPECT_EQ(report.layers[1].Imbalance(), 1.0);
  EXPECT_EQ(report.LargestImbalance(), 2.0);
  EXPECT_EQ(report.MeanEntropy(), 0.625);
}

TEST(RouterReport, BecomesMetrics) {
  Metrics metrics = {{"loss", 4.0}};
  AppendMetrics(Report(), metrics);
  EXPECT_THAT(metrics,
              ElementsAre(Pair("loss", 4.0), Pair("aux_loss", 2.125), Pair("router_entropy", 0.625),
                          Pair("expert_imbalance", 2.0), Pair("router_entropy/h.0", 1.25),
                          Pair("expert_imbalance/h.0", 2.0), Pair("router_entropy/h.1", 0.0),
                          Pair("expert_imbalance/h.1", 1.0)));
}

TEST(RouterReport, BecomesLines) {
  EXPECT_EQ(FormatExpertLoad(Report()),
            "expert load of the last step, in percent of each layer's choices\n"
            "h.0    25.0  50.0   0.0  25.0 | max/mean 2.00 | entropy 1.250\n"
            "h.1     0.0   0.0   0.0   0.0 | max/mean 1.00 | entropy 0.000");
}

}  // namespace
}  // namespace infini_train::trainer
