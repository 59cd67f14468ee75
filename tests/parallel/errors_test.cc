// Bad calls, ranks that fail, do not come or call something else: an Error on every rank, no hang.

#include <atomic>
#include <barrier>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/common/errors.h"
#include "tests/parallel/ranks.h"

namespace infini_train::test {
namespace {

using test::MessageOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// What each rank's body threw; empty for nothing.
std::vector<std::string> MessagesOf(int num_ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> messages(static_cast<std::size_t>(num_ranks));
  RunThreadRanks(InProcessCcl(), DevicesOfRanks({}, num_ranks), [&](ParallelContext& context) {
    try {
      body(*context.world());
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(context.rank())] = error.what();
    }
  });
  return messages;
}

Tensor Zeros(std::int64_t count, DataType dtype = DataType::kFloat32) {
  return MakeTensor({}, dtype, {count}, std::vector<double>(static_cast<std::size_t>(count), 0.0));
}

TEST(CommunicatorErrors, NameRankCallShapeAndType) {
  const auto messages =
      MessagesOf(2, [](Communicator& communicator) { communicator.AllReduce(Zeros(6), Zeros(5)); });
  EXPECT_THAT(messages[1], AllOf(HasSubstr("rank 1 of 2 on cpu: AllReduce(sum) of [6] float32"),
                                 HasSubstr("[5]")));
}

TEST(CommunicatorErrors, ArgumentsThatDoNotFit) {
  const auto expect = [](const std::string& text, const std::function<void(Communicator&)>& body) {
    for (const std::string& message : MessagesOf(2, body))
      EXPECT_THAT(message, HasSubstr(text));
  };
  expect("undefined", [](Communicator& c) { c.AllReduce(Tensor()); });
  expect("contiguous", [](Communicator& c) { c.AllReduce(Zeros(6).AsStrided({3}, {2}, 0)); });
  expect("output of float32",
         [](Communicator& c) { c.AllReduce(Zeros(6), Zeros(6, DataType::kInt32)); });
  expect("floating type",
         [](Communicator& c) { c.AllReduce(Zeros(6, DataType::kInt32), ReduceOp::kAverage); });
  expect("2 times the elements of the input",
         [](Communicator& c) { c.AllGather(Zeros(6), Zeros(6)); });
  expect("2 times the elements of the output",
         [](Communicator& c) { c.ReduceScatter(Zeros(7), Zeros(3)); });
  expect("2 equal parts", [](Communicator& c) { c.AllToAll(Zeros(7), Zeros(7)); });
  expect("from 0 to 1, got 2", [](Communicator& c) { c.Broadcast(Zeros(6), 2); });
  expect("from 0 to 1, got -1", [](Communicator& c) { c.Send(Zeros(6), -1); });
}

TEST(CommunicatorErrors, CallsThatDoNotMatchAreNamedOnAllRanks) {
  struct Case {
    std::function<void(Communicator&)> first;
    std::function<void(Communicator&)> second;
    std::string text;
  };
  const Case cases[] = {
      {[](Communicator& c) { c.AllReduce(Zeros(6)); },
       [](Communicator& c) { c.AllReduce(Zeros(7)); }, "[7]"},
      {[](Communicator& c) { c.AllReduce(Zeros(6)); },
       [](Communicator& c) { c.AllReduce(Zeros(6, DataType::kInt32)); }, "int32"},
      {[](Communicator& c) { c.AllReduce(Zeros(6)); },
       [](Communicator& c) { c.AllReduce(Zeros(6), ReduceOp::kMax); }, "AllReduce(max)"},
      {[](Communicator& c) { c.AllReduce(Zeros(6)); },
       [](Communicator& c) { c.Broadcast(Zeros(6), 0); }, "Broadcast"},
      {[](Communicator& c) { c.Broadcast(Zeros(6), 0); },
       [](Communicator& c) { c.Broadcast(Zeros(6), 1); }, "from rank 1"},
      {[](Communicator& c) { c.Send(Zeros(6), 1); }, [](Communicator& c) { c.Recv(Zeros(8), 0); },
       "Recv from rank 0"},
  };
  for (const char* check : {"0", "1"}) {
    const EnvironmentVariable checking("INFINI_TRAIN_CCL_CHECK", check);
    for (const Case& test : cases) {
      SCOPED_TRACE(test.text + " with INFINI_TRAIN_CCL_CHECK=" + check);
      const auto messages = MessagesOf(2, [&](Communicator& communicator) {
        (communicator.rank() == 0 ? test.first : test.second)(communicator);
      });
      for (const std::string& message : messages) {
        EXPECT_THAT(message, AllOf(HasSubstr("do not match"), HasSubstr(test.text),
                                   HasSubstr("rank 0"), HasSubstr("rank 1")));
      }
    }
  }
}

/// Collectives whose rank 0 gets its communicator when rank 1 has done all that it does.
class SlowFirstRankCcl final : public Ccl {
 public:
  std::string Name() const override { return "a slow first rank"; }
  parallel::UniqueId CreateUniqueId() override { return {std::byte{7}}; }
  void RankOneIsDone() { ranks_met_.arrive_and_wait(); }

 protected:
  class Idle final : public Communicator {
   protected:
    void EnqueueAllReduce(const void*, void*, std::size_t, DataType, ReduceOp,
                          StreamHandle) override {}
    void EnqueueReduceScatter(const void*, void*, std::size_t, DataType, ReduceOp,
                              StreamHandle) override {}
    void EnqueueAllGather(const void*, void*, std::size_t, StreamHandle) override {}
    void EnqueueBroadcast(void*, std::size_t, int, StreamHandle) override {}
    void EnqueueSend(const void*, std::size_t, int, StreamHandle) override {}
    void EnqueueRecv(void*, std::size_t, int, StreamHandle) override {}
    void Abort(const std::string&) noexcept override {}
  };

  std::unique_ptr<Communicator> MakeCommunicator(const parallel::UniqueId&, int rank, int,
                                                 Device) override {
    ranks_met_.arrive_and_wait();
    if (rank == 0) ranks_met_.arrive_and_wait();
    return std::make_unique<Idle>();
  }
  void BeginGroup() override {}
  void EndGroup() override {}

 private:
  std::barrier<> ranks_met_{2};
};

TEST(CommunicatorErrors, ARankThatLeavesBeforeTheOthersBeginIsNotWaitedFor) {
  const EnvironmentVariable checking("INFINI_TRAIN_CCL_CHECK", "1");
  const EnvironmentVariable timeout("INFINI_TRAIN_CCL_TIMEOUT", "0.2");
  SlowFirstRankCcl ccl;
  const parallel::UniqueId id = ccl.CreateUniqueId();
  std::thread leaver([&] {
    ccl.CreateCommunicator(id, 1, 2, {})->Stop("gone already");
    ccl.RankOneIsDone();
  });
  const auto communicator = ccl.CreateCommunicator(id, 0, 2, {});
  EXPECT_THAT(MessageOf([&] { communicator->AllReduce(Zeros(6)); }), HasSubstr("gone already"));
  leaver.join();
}

TEST(CommunicatorErrors, ARankThatDoesNotComeIsNamed) {
  const EnvironmentVariable timeout("INFINI_TRAIN_CCL_TIMEOUT", "0.2");
  for (const char* check : {"0", "1"}) {
    const EnvironmentVariable checking("INFINI_TRAIN_CCL_CHECK", check);
    const auto messages = MessagesOf(3, [](Communicator& communicator) {
      if (communicator.rank() != 1) communicator.AllReduce(Zeros(6));
    });
    EXPECT_THAT(messages[0], AllOf(HasSubstr("rank 1 did not come within 0.2 s"),
                                   HasSubstr("AllReduce(sum) of [6] float32")));
    EXPECT_THAT(messages[1], "");
    EXPECT_THAT(messages[2], HasSubstr("rank 1 did not come within 0.2 s"));
  }
}

TEST(CommunicatorErrors, ARankMissingAtTheStartIsNamed) {
  const EnvironmentVariable timeout("INFINI_TRAIN_CCL_TIMEOUT", "0.2");
  const parallel::UniqueId id = InProcessCcl().CreateUniqueId();
  EXPECT_THAT(MessageOf([&] { InProcessCcl().CreateCommunicator(id, 0, 2, {}); }),
              AllOf(HasSubstr("rank 0 of 2 on cpu"), HasSubstr("rank 1 did not come")));
  EXPECT_THAT(MessageOf([&] { InProcessCcl().CreateCommunicator(id, 2, 2, {}); }),
              HasSubstr("from 0 to 1, got 2"));
}

TEST(CommunicatorErrors, TheTimeoutIsANumberOfSeconds) {
  for (const char* value : {"0", "-1", "soon", "1s"}) {
    const EnvironmentVariable timeout("INFINI_TRAIN_CCL_TIMEOUT", value);
    const parallel::UniqueId id = InProcessCcl().CreateUniqueId();
    EXPECT_THAT(MessageOf([&] { InProcessCcl().CreateCommunicator(id, 0, 1, {}); }),
                HasSubstr("INFINI_TRAIN_CCL_TIMEOUT"));
  }
}

TEST(CommunicatorErrors, ARankThatThrowsEndsTheOthersWithItsMessage) {
  std::vector<std::string> messages(4);
  const std::string message = MessageOf([&] {
    RunThreadRanks(InProcessCcl(), DevicesOfRanks({}, 4), [&](ParallelContext& context) {
      try {
        context.world()->AllReduce(Zeros(6));
        if (context.rank() == 2) throw Error("the cat is on the keyboard");
        context.world()->AllReduce(Zeros(6));
      } catch (const Error& error) {
        messages[static_cast<std::size_t>(context.rank())] = error.what();
        throw;
      }
    });
  });
  EXPECT_EQ(message, "the cat is on the keyboard");
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(messages[static_cast<std::size_t>(rank)],
                HasSubstr("rank 2 failed: the cat is on the keyboard"));
  }
}

TEST(CommunicatorErrors, WhatFailsAfterACallReturnedIsFoundByCheckErrors) {
  const EnvironmentVariable timeout("INFINI_TRAIN_CCL_TIMEOUT", "0.2");
  const auto messages = MessagesOf(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    DeviceGuardImpl& cpu = GetDeviceGuardImpl(DeviceType::kCPU);
    const StreamHandle stream = cpu.CreateStream(0);
    communicator.AllReduce(Zeros(6), ReduceOp::kSum, stream);
    communicator.AllReduce(Zeros(6), ReduceOp::kSum, stream);
    cpu.SynchronizeStream(stream);
    cpu.DestroyStream(stream);
    communicator.CheckErrors();
  });
  EXPECT_THAT(messages[0], HasSubstr("rank 1 did not come"));
}

TEST(CommunicatorErrors, AnExceptionInsideAGroupEndsTheCalls) {
  const auto messages = MessagesOf(2, [](Communicator& communicator) {
    CclGroup group(communicator);
    communicator.AllReduce(Zeros(6));
    if (communicator.rank() == 1) throw Error("not today");
    group.End();
  });
  EXPECT_EQ(messages[1], "not today");
  EXPECT_THAT(messages[0], HasSubstr("rank 1 failed while its group of calls was open"));
}

TEST(CommunicatorErrors, AnExceptionInsideANestedGroupCountsForTheOutermost) {
  for (const char* check : {"0", "1"}) {
    const EnvironmentVariable checking("INFINI_TRAIN_CCL_CHECK", check);
    const auto messages = MessagesOf(2, [](Communicator& communicator) {
      CclGroup group(communicator);
      communicator.AllReduce(Zeros(6));
      try {
        const CclGroup nested(communicator);
        communicator.AllReduce(Zeros(6));
        if (communicator.rank() == 1) throw std::runtime_error("not today");
      } catch (const std::runtime_error&) {
        // Too late to go on as if nothing had happened.
      }
      group.End();
    });
    EXPECT_THAT(messages[0], HasSubstr("rank 1 failed while its group of calls was open"));
    EXPECT_THAT(messages[1], HasSubstr("an exception left this group of collectives"));
  }
}

TEST(CommunicatorErrors, CallsOfGroupsThatDoNotMatchAreNamedOnAllRanks) {
  for (const char* check : {"0", "1"}) {
    const EnvironmentVariable checking("INFINI_TRAIN_CCL_CHECK", check);
    const auto messages = MessagesOf(2, [](Communicator& communicator) {
      CclGroup group(communicator);
      communicator.AllReduce(Zeros(6));
      communicator.AllReduce(Zeros(7 + communicator.rank()));
      group.End();
    });
    for (const std::string& message : messages)
      EXPECT_THAT(message, AllOf(HasSubstr("do not match"), HasSubstr("[7]"), HasSubstr("[8]")));
  }
}

TEST(CommunicatorErrors, StopEndsWaitingCalls) {
  std::vector<std::string> messages = MessagesOf(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) {
      communicator.Stop("enough");
      communicator.CheckErrors();
    }
    communicator.Barrier();
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("enough"));
}

}  // namespace
}  // namespace infini_train::test
