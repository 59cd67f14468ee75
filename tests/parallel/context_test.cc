#include "infini_train/parallel/parallel_context.h"

#include "tests/common/errors.h"
#include "tests/parallel/ranks.h"

namespace infini_train::test {
namespace {

using parallel::ParallelDegrees;
using ::testing::HasSubstr;

TEST(ParallelContext, OneRankNeedsNobody) {
  RunThreadRanks({Device()}, [](ParallelContext& context) {
    EXPECT_EQ(context.rank(), 0);
    EXPECT_EQ(context.world_size(), 1);
    EXPECT_TRUE(context.is_first());
    EXPECT_EQ(context.world(), nullptr);
    EXPECT_EQ(context.data_parallel(), nullptr);
    EXPECT_EQ(context.coordinates(), (ParallelDegrees{0, 0, 0}));
  });
}

TEST(ParallelContext, ThreadRanksAreDataParallel) {
  RunThreadRanks(DevicesOfRanks({}, 3), [](ParallelContext& context) {
    EXPECT_EQ(context.world_size(), 3);
    EXPECT_EQ(context.rank(), context.thread_rank());
    EXPECT_EQ(context.degrees(), (ParallelDegrees{1, 3, 1}));
    EXPECT_EQ(context.coordinates().data, context.rank());
    EXPECT_EQ(context.data_parallel(), context.world());
  });
}

TEST(ParallelContext, RanksDifferInTensorFirstThenDataThenPipeline) {
  const parallel::UniqueId id = InProcessCcl().CreateUniqueId();
  RunThreadRanks(DevicesOfRanks({}, 8), [&](ParallelContext& outer) {
    ParallelContext context(InProcessCcl().CreateCommunicator(id, outer.rank(), 8, {}),
                            outer.rank(), {.tensor = 2, .data = 2, .pipeline = 2});
    const int rank = context.rank();
    EXPECT_EQ(context.coordinates(), (ParallelDegrees{rank & 1, rank >> 1 & 1, rank >> 2}));
    ASSERT_NE(context.data_parallel(), nullptr);
    EXPECT_EQ(context.data_parallel()->size(), 2);
    EXPECT_EQ(context.data_parallel()->rank(), rank >> 1 & 1);
    const Tensor x = MakeTensor({}, DataType::kInt32, {1}, {static_cast<double>(rank)});
    context.data_parallel()->AllReduce(x);
    EXPECT_EQ(x.Item(), (rank & ~2) + (rank | 2));
  });
}

TEST(ParallelContext, DegreesMakeUpTheWorld) {
  const std::string message = test::MessageOf([] {
    RunThreadRanks(DevicesOfRanks({}, 2), [](ParallelContext& context) {
      ParallelContext wrong(context.world()->Split(0, 0), 0, {.tensor = 2, .data = 2});
    });
  });
  EXPECT_THAT(message, HasSubstr("number of ranks, 2, got 2 (tensor) * 2 (data) * 1 (pipeline)"));
}

}  // namespace
}  // namespace infini_train::test
