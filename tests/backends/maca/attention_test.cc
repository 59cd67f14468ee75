// Attention by products of so many heads that they are read and written where they lie.

#include <gtest/gtest.h>

#include "infini_train/core/device/graph.h"
#include "tests/ops/attention_fixture.h"

namespace infini_train {
namespace {

class MacaAttentionTest : public test::AttentionFixture {};

constexpr DataType kType = DataType::kBFloat16;

TEST_P(MacaAttentionTest, TheSameHeadOfManySamples) {
  Check({68, 2, 2, 256, 256, 2, kType, Causal(0.3), true});
  Check({68, 2, 2, 256, 256, 2, kType, Full(0.3, 100)});
}

TEST_P(MacaAttentionTest, ManyHeadsOfASample) {
  Check({2, 136, 136, 256, 256, 2, kType, Causal(0.3), true});
}

TEST_P(MacaAttentionTest, HeadsThatShareKeysAreCopied) {
  Check({36, 4, 2, 256, 256, 2, kType, Causal(0.3), true});
}

// Several lines of heads are worked on at once.
TEST_P(MacaAttentionTest, SameBitsAgainAndInAGraph) {
  const test::AttentionCase c{64, 2, 2, 256, 256, 2, kType, Causal(0.3), true};
  const Inputs inputs(c);
  const Result called = Run(c, inputs);
  ExpectSameBits(Run(c, inputs), called);
  Result replayed = Prepare(c, inputs.q, inputs.k, inputs.v, inputs.grad_out);
  DeviceGraph graph(device(), [&] { Enqueue(c, replayed); });
  graph.Launch();
  ExpectSameBits(replayed, called);
}

INSTANTIATE_TEST_SUITE_P(Maca, MacaAttentionTest,
                         ::testing::Values(Device(DeviceType::kPrivateUse1, 0)));

}  // namespace
}  // namespace infini_train
