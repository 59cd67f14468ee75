// Buckets of gradients, reduced while backward runs.

#include "infini_train/parallel/data_parallel.h"

#include <memory>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "tests/common/errors.h"
#include "tests/parallel/ranks.h"

namespace infini_train::test {
namespace {

using parallel::DataParallel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Parameters p0, p1, ... of `count` elements, different on each rank.
NamedTensors MakeParameters(Device device, int num, std::int64_t count, int rank,
                            DataType dtype = DataType::kFloat32) {
  NamedTensors parameters;
  for (int i = 0; i < num; ++i) {
    const std::vector<double> values(static_cast<std::size_t>(count), 1 + i + 10 * rank);
    parameters.emplace_back("p" + std::to_string(i), MakeTensor(device, dtype, {count}, values));
    parameters.back().second.set_requires_grad();
  }
  return parameters;
}

/// A loss whose gradient is `factor` for every element of the parameters.
Tensor SumOf(const NamedTensors& parameters, double factor) {
  Tensor sum;
  for (const auto& [name, tensor] : parameters) {
    const Tensor term = Sum(Mul(tensor, Scalar(factor)));
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

void ExpectGradients(const NamedTensors& parameters, double value) {
  for (const auto& [name, tensor] : parameters) {
    ASSERT_TRUE(tensor.grad().defined()) << name;
    ExpectEqual(tensor.grad(),
                std::vector<double>(static_cast<std::size_t>(tensor.numel()), value));
  }
}

class DataParallelTest : public RanksTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE_WITH(DataParallelTest,
                                           ::testing::ValuesIn(RankCases({1, 2, 4}, {2})),
                                           NameOfRankCase);

TEST_P(DataParallelTest, GradientsAreSumsOverRanksAndMicroBatches) {
  RunRanks([&](Communicator& communicator) {
    const int rank = communicator.rank();
    const NamedTensors parameters = MakeParameters(communicator.device(), 5, 1000, rank);
    DataParallel sync(communicator, parameters, 4000.0 * 2 / (1 << 20));
    EXPECT_EQ(sync.bucket_bytes().size(), 3u) << "two parameters of 4032 bytes fill a bucket";
    for (int step = 0; step < 4; ++step) {
      sync.BeginStep();
      Backward(SumOf(parameters, 1));
      Backward(SumOf(parameters, 10));
      sync.LastBackward();
      Backward(SumOf(parameters, 100 * (rank + 1)));
      sync.EndStep();
      EXPECT_EQ(sync.overlapped_buckets(), step == 0 ? 0 : 3);
      ExpectGradients(parameters, 11 * size() + 50 * size() * (size() + 1));
    }
  });
}

TEST_P(DataParallelTest, ParametersStartAsThoseOfTheFirstRank) {
  RunRanks([&](Communicator& communicator) {
    const NamedTensors parameters =
        MakeParameters(communicator.device(), 3, 7, communicator.rank());
    DataParallel sync(communicator, parameters);
    sync.Broadcast(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      ExpectEqual(parameters[i].second, std::vector<double>(7, 1.0 + static_cast<double>(i)));
  });
}

TEST_P(DataParallelTest, AParameterThatNothingUsesHasNoGradient) {
  RunRanks([&](Communicator& communicator) {
    NamedTensors parameters = MakeParameters(communicator.device(), 4, 100, communicator.rank());
    // The last is in the first bucket.
    const NamedTensors used(parameters.begin(), parameters.end() - 1);
    DataParallel sync(communicator, parameters, 400.0 * 2 / (1 << 20));
    for (int step = 0; step < 3; ++step) {
      sync.BeginStep();
      sync.LastBackward();
      Backward(SumOf(used, 2));
      sync.EndStep();
      EXPECT_EQ(sync.overlapped_buckets(), step == 0 ? 0 : 2);
      ExpectGradients(used, 2 * size());
      EXPECT_FALSE(parameters.back().second.grad().defined());
    }
  });
}

TEST_P(DataParallelTest, OneUsedTwiceIsFinalOnce) {
  RunRanks([&](Communicator& communicator) {
    const NamedTensors parameters =
        MakeParameters(communicator.device(), 2, 100, communicator.rank());
    const Tensor& tied = parameters[0].second;
    DataParallel sync(communicator, parameters, 1e-6);
    for (int step = 0; step < 3; ++step) {
      sync.BeginStep();
      sync.LastBackward();
      Backward(Sum(tied) + Sum(parameters[1].second) + Sum(Mul(tied, Scalar(2))));
      sync.EndStep();
      ExpectGradients({parameters[0]}, 3 * size());
      ExpectGradients({parameters[1]}, size());
    }
  });
}

TEST_P(DataParallelTest, CheckpointedPartsMayShareAParameter) {
  RunRanks([&](Communicator& communicator) {
    const NamedTensors parameters =
        MakeParameters(communicator.device(), 2, 100, communicator.rank());
    const Tensor& shared = parameters[0].second;
    const auto part = [&](const std::vector<Tensor>& inputs) {
      return std::vector<Tensor>{inputs[0] + Mul(shared, Scalar(2))};
    };
    DataParallel sync(communicator, parameters, 1e-6);
    for (int step = 0; step < 3; ++step) {
      sync.BeginStep();
      sync.LastBackward();
      const Tensor once = Checkpoint(part, {parameters[1].second}).front();
      Backward(Sum(Checkpoint(part, {once}).front()));
      sync.EndStep();
      ExpectGradients({parameters[0]}, 4 * size());
      ExpectGradients({parameters[1]}, size());
    }
  });
}

TEST_P(DataParallelTest, TypesAndFrozenParametersDoNotMix) {
  RunRanks([&](Communicator& communicator) {
    const Device device = communicator.device();
    NamedTensors parameters = MakeParameters(device, 2, 64, 0);
    const NamedTensors halves = MakeParameters(device, 2, 64, 0, DataType::kBFloat16);
    parameters.insert(parameters.end(), halves.begin(), halves.end());
    parameters[0].second.set_requires_grad(false);
    DataParallel sync(communicator, parameters);
    EXPECT_THAT(sync.bucket_bytes(), ElementsAre(2 * 128u, 256u));
  });
}

TEST_P(DataParallelTest, ThereIsNoTraceOfItAfterwards) {
  RunRanks([&](Communicator& communicator) {
    const NamedTensors parameters =
        MakeParameters(communicator.device(), 2, 10, communicator.rank());
    {
      DataParallel sync(communicator, parameters);
      sync.BeginStep();
    }
    EXPECT_FALSE(parameters[0].second.grad().defined());
    Backward(SumOf(parameters, 3));
    ExpectGradients(parameters, 3);
  });
}

TEST_P(DataParallelTest, AGradientThatComesTooLateIsAnError) {
  if (size() > 1) GTEST_SKIP() << "one rank says it";
  RunRanks([&](Communicator& communicator) {
    const NamedTensors parameters = MakeParameters(communicator.device(), 2, 10, 0);
    DataParallel sync(communicator, parameters);
    sync.BeginStep();
    sync.LastBackward();
    Backward(SumOf({parameters[0]}, 1));
    sync.EndStep();
    sync.BeginStep();
    sync.LastBackward();
    EXPECT_THAT(test::MessageOf([&] { Backward(SumOf(parameters, 1)); }),
                HasSubstr("parameter p1 got a gradient 1 times in the last backward of a step"));
    EXPECT_THAT(test::MessageOf([&] { DataParallel(communicator, parameters, 0.0); }),
                HasSubstr("more than 0 MB"));
  });
}

}  // namespace
}  // namespace infini_train::test
