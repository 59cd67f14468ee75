// Sends, groups of calls, and communicators of a part of the ranks, on every device.

#include <memory>
#include <mutex>

#include "infini_train/core/storage.h"
#include "tests/common/errors.h"
#include "tests/parallel/ranks.h"

namespace infini_train::test {
namespace {

Tensor Filled(Device device, double value, std::int64_t count = 100) {
  return MakeTensor(device, DataType::kFloat32, {count},
                    std::vector<double>(static_cast<std::size_t>(count), value));
}

void ExpectAll(const Tensor& x, double value) {
  ExpectEqual(x, std::vector<double>(static_cast<std::size_t>(x.numel()), value));
}

class CclGroupsTest : public RanksTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE_WITH(CclGroupsTest, ::testing::ValuesIn(AllRankCases()),
                                           NameOfRankCase);

TEST_P(CclGroupsTest, ARingSendsAndReceivesAtOnce) {
  RunRanks([&](Communicator& communicator) {
    const int rank = communicator.rank();
    const int next = (rank + 1) % size();
    const int previous = (rank + size() - 1) % size();
    Tensor held = Filled(communicator.device(), rank);
    // Receiving first would wait for ever without the group.
    for (int step = 1; step <= size(); ++step) {
      const Tensor received = MakeOutput(communicator.device(), DataType::kFloat32, {100});
      {
        CclGroup group(communicator);
        communicator.Recv(received, previous);
        communicator.Send(held, next);
        group.End();
      }
      ExpectAll(received, (rank + size() - step) % size());
      held = received;
    }
  });
}

TEST_P(CclGroupsTest, APairSendsInTurn) {
  if (size() < 2) GTEST_SKIP() << "needs two ranks";
  RunRanks([&](Communicator& communicator) {
    const Tensor x = Filled(communicator.device(), communicator.rank() + 1);
    for (int round = 0; round < 3; ++round) {
      if (communicator.rank() == 0) communicator.Send(x, 1);
      if (communicator.rank() == 1) {
        communicator.Recv(x, 0);
        ExpectAll(x, 1);
      }
    }
  });
}

TEST_P(CclGroupsTest, CallsOfAGroupStartTogetherInAnyOrder) {
  RunRanks([&](Communicator& communicator) {
    const auto other = communicator.Split(0, -communicator.rank());
    EXPECT_EQ(other->rank(), size() - 1 - communicator.rank());
    const Tensor a = Filled(communicator.device(), 1);
    const Tensor b = Filled(communicator.device(), 10);
    {
      CclGroup group(communicator);
      // Each rank in an order of its own.
      if (communicator.rank() % 2 == 0) {
        communicator.AllReduce(a);
        const CclGroup nested(*other);
        other->AllReduce(b);
      } else {
        other->AllReduce(b);
        communicator.AllReduce(a);
      }
      group.End();
    }
    ExpectAll(a, size());
    ExpectAll(b, 10 * size());
  });
}

TEST_P(CclGroupsTest, SplitMakesCommunicatorsOfColors) {
  RunRanks([&](Communicator& communicator) {
    const int rank = communicator.rank();
    // Even and odd ranks, the later first; the last rank stays out.
    const bool outside = size() > 1 && rank == size() - 1;
    const auto part = communicator.Split(outside ? -1 : rank % 2, -rank);
    EXPECT_EQ(part == nullptr, outside);
    if (!part) return;
    std::vector<int> members;
    for (int other = size() - 1; other >= 0; --other) {
      if (other % 2 == rank % 2 && !(size() > 1 && other == size() - 1)) members.push_back(other);
    }
    EXPECT_EQ(part->size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[static_cast<std::size_t>(part->rank())], rank);
    const Tensor x = Filled(communicator.device(), 1 << rank);
    part->AllReduce(x);
    double sum = 0;
    for (const int member : members)
      sum += 1 << member;
    ExpectAll(x, sum);
  });
}

TEST_P(CclGroupsTest, MemoryOfAGroupsCallsStaysUntilTheyAreMade) {
  RunRanks([&](Communicator& communicator) {
    std::weak_ptr<Storage> sent, received;
    {
      CclGroup group(communicator);
      {
        const Tensor input = Filled(communicator.device(), 1);
        const Tensor output = MakeOutput(communicator.device(), DataType::kFloat32, {100});
        sent = input.storage();
        received = output.storage();
        communicator.AllReduce(input, output);
      }
      EXPECT_FALSE(sent.expired());
      EXPECT_FALSE(received.expired());
      group.End();
    }
    EXPECT_TRUE(sent.expired());
    EXPECT_TRUE(received.expired());
  });
}

TEST_P(CclGroupsTest, ARankThatFailsInAGroupEndsTheOthers) {
  if (size() < 2) GTEST_SKIP() << "needs two ranks";
  std::vector<std::string> messages;
  std::mutex mutex;
  const auto run = [&] {
    RunRanks([&](Communicator& communicator) {
      const Tensor x = Filled(communicator.device(), 1);
      try {
        CclGroup group(communicator);
        communicator.AllReduce(x);
        if (communicator.rank() == 1) throw Error("not today");
        communicator.AllReduce(x);
        group.End();
        Synchronize(communicator.device());
        communicator.CheckErrors();
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(error.what());
        throw;
      }
    });
  };
  const std::string first = test::MessageOf(run);
  EXPECT_THAT(messages, ::testing::Contains("not today"));
  EXPECT_THAT(messages, ::testing::Contains(first));
  EXPECT_EQ(messages.size(), static_cast<std::size_t>(size()));
}

TEST_P(CclGroupsTest, ARankThatStopsEndsWaitingCallsOfTheOthers) {
  if (size() < 2) GTEST_SKIP() << "needs two ranks";
  const auto run = [&] {
    RunRanks([&](Communicator& communicator) {
      const Tensor x = Filled(communicator.device(), 1);
      communicator.AllReduce(x);
      Synchronize(communicator.device());
      if (communicator.rank() == 1) throw Error("not today");
      communicator.Barrier();
    });
  };
  EXPECT_EQ(test::MessageOf(run), "not today");
}

TEST_P(CclGroupsTest, AGroupCannotWait) {
  RunRanks([&](Communicator& communicator) {
    CclGroup group(communicator);
    EXPECT_THAT(test::MessageOf([&] { communicator.Barrier(); }), ::testing::HasSubstr("group"));
    EXPECT_THAT(test::MessageOf([&] { communicator.Split(0, 0); }), ::testing::HasSubstr("group"));
    group.End();
  });
}

}  // namespace
}  // namespace infini_train::test
