// What every implementation of the collectives promises, against float64.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/parallel/ranks.h"

namespace infini_train::test {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kAverage};

/// Counts that ranks share evenly, unevenly and not all, and more than is reduced at a time.
constexpr std::int64_t kCounts[] = {1, 5, 1000, 300001};

/// A rank's elements, numbers of the dtype.
std::vector<double> ValuesOf(int rank, std::int64_t count, DataType dtype) {
  std::vector<double> values = RandomValues(count, -2, 2, static_cast<std::uint64_t>(rank) + 1);
  for (double& value : values) {
    if (dtype == DataType::kBool) {
      value = value > -1.5 ? 1 : 0;
    } else if (!IsFloatingPoint(dtype)) {
      // Small, so that products of 8 fit into a byte.
      value = rank < 4 && value > 0 ? 2 : 1;
    }
  }
  return IsFloatingPoint(dtype) ? ToDoubles(MakeTensor({}, dtype, {count}, values)) : values;
}

struct Reduced {
  std::vector<double> values;
  std::vector<double> scales;  ///< see Tolerance
};

Reduced Reduce(const std::vector<std::vector<double>>& parts, DataType dtype, ReduceOp op) {
  Reduced result{parts.front(), parts.front()};
  for (double& scale : result.scales)
    scale = std::fabs(scale);
  const bool is_bool = dtype == DataType::kBool;
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    for (std::size_t i = 0; i < result.values.size(); ++i) {
      double& value = result.values[i];
      const double part = parts[rank][i];
      switch (op) {
        case ReduceOp::kSum:
        case ReduceOp::kAverage:
          value = is_bool ? std::max(value, part) : value + part;
          result.scales[i] += std::fabs(part);
          break;
        case ReduceOp::kProduct:
          value *= part;
          result.scales[i] = std::fabs(value);
          break;
        case ReduceOp::kMin:
          value = std::min(value, part);
          break;
        case ReduceOp::kMax:
          value = std::max(value, part);
          break;
      }
    }
  }
  if (op == ReduceOp::kAverage) {
    for (double& value : result.values)
      value /= static_cast<double>(parts.size());
  }
  return result;
}

std::vector<std::vector<double>> AllValues(int size, std::int64_t count, DataType dtype) {
  std::vector<std::vector<double>> parts;
  for (int rank = 0; rank < size; ++rank)
    parts.push_back(ValuesOf(rank, count, dtype));
  return parts;
}

std::vector<double> Joined(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all;
  for (const auto& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<double> Slice(const std::vector<double>& values, std::int64_t begin,
                          std::int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

class CollectivesTest : public RanksTest {
 protected:
  /// Calls of the provider's libraries may have no 16-bit integers.
  static bool Reduces(DataType dtype, ReduceOp op) {
    if (op == ReduceOp::kAverage && !IsFloatingPoint(dtype)) return false;
    return !(value().provider && dtype == DataType::kUInt16);
  }

  static Tolerance ToleranceOf(DataType dtype) {
    Tolerance tolerance{.operations = static_cast<double>(size())};
    if (value().provider) tolerance.compute = dtype;
    return tolerance;
  }

  static void ExpectReduced(const Tensor& actual, const Reduced& expected, DataType dtype) {
    ExpectClose(actual, expected.values, ToleranceOf(dtype), expected.scales);
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE_WITH(CollectivesTest, ::testing::ValuesIn(AllRankCases()),
                                           NameOfRankCase);

// A test makes one communicator: some libraries take long over it.

struct Case {
  std::int64_t count;
  DataType dtype;
  ReduceOp op;
  std::vector<Tensor> results;  ///< of the ranks

  std::string Name() const {
    return std::to_string(count) + " of " + std::string(ToString(dtype)) + ", " +
           std::string(ToString(op));
  }
};

TEST_P(CollectivesTest, AllReduceInEveryTypeByEveryOp) {
  std::vector<Case> cases;
  for (const std::int64_t count : kCounts) {
    for (const DataType dtype : kAllTypes) {
      // Large ones are about pieces, not types.
      if (count > 1000 && dtype != DataType::kFloat32 && dtype != DataType::kBFloat16) continue;
      for (const ReduceOp op : kOps) {
        if (Reduces(dtype, op))
          cases.push_back(
              {count, dtype, op, std::vector<Tensor>(static_cast<std::size_t>(size()))});
      }
    }
  }
  RunRanks([&](Communicator& communicator) {
    const int rank = communicator.rank();
    for (Case& c : cases) {
      SCOPED_TRACE(c.Name());
      const std::vector<double> values = ValuesOf(rank, c.count, c.dtype);
      const Tensor x = MakeTensor(communicator.device(), c.dtype, {c.count}, values);
      const Tensor out = MakeOutput(communicator.device(), c.dtype, {c.count});
      const std::uint64_t version = out.version();
      communicator.AllReduce(x, out, c.op);
      EXPECT_GT(out.version(), version);
      ExpectEqual(x, values);
      communicator.AllReduce(x, c.op);
      ExpectSameBits(x, out);
      c.results[static_cast<std::size_t>(rank)] = out;
    }
  });
  for (const Case& c : cases) {
    SCOPED_TRACE(c.Name());
    const Reduced expected = Reduce(AllValues(size(), c.count, c.dtype), c.dtype, c.op);
    ExpectReduced(c.results.front(), expected, c.dtype);
    for (const Tensor& result : c.results)
      ExpectSameBits(result, c.results.front());
  }
}

TEST_P(CollectivesTest, ReduceScatterGivesEachRankItsPart) {
  constexpr std::int64_t kPart = 37;
  RunRanks([&](Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    for (const DataType dtype : kAllTypes) {
      const auto parts = AllValues(size(), kPart * size(), dtype);
      for (const ReduceOp op : kOps) {
        if (!Reduces(dtype, op)) continue;
        SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::string(ToString(op)));
        const Reduced expected = Reduce(parts, dtype, op);
        const Tensor x = MakeTensor(communicator.device(), dtype, {size(), kPart},
                                    parts[static_cast<std::size_t>(rank)]);
        const Tensor out = MakeOutput(communicator.device(), dtype, {kPart});
        communicator.ReduceScatter(x, out, op);
        ExpectReduced(out,
                      {Slice(expected.values, rank * kPart, kPart),
                       Slice(expected.scales, rank * kPart, kPart)},
                      dtype);
        const Tensor own = x.AsStrided({kPart}, {1}, rank * kPart);
        communicator.ReduceScatter(x, own, op);
        ExpectSameBits(own, out);
      }
    }
  });
}

TEST_P(CollectivesTest, AllGatherJoinsTheRanks) {
  RunRanks([&](Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    for (const DataType dtype : kAllTypes) {
      for (const std::int64_t count : {1, 33}) {
        SCOPED_TRACE(ToString(dtype));
        const auto parts = AllValues(size(), count, dtype);
        const Tensor x = MakeTensor(communicator.device(), dtype, {count},
                                    parts[static_cast<std::size_t>(rank)]);
        const Tensor out = MakeOutput(communicator.device(), dtype, {size(), count});
        communicator.AllGather(x, out);
        ExpectEqual(out, Joined(parts));

        const Tensor in_place = MakeOutput(communicator.device(), dtype, {size(), count});
        const Tensor own = in_place.AsStrided({count}, {1}, rank * count);
        std::vector<std::byte> bytes(x.nbytes());
        x.CopyToHost(bytes.data());
        own.CopyFromHost(bytes.data(), bytes.size());
        communicator.AllGather(own, in_place);
        ExpectSameBits(in_place, out);
      }
    }
  });
}

TEST_P(CollectivesTest, BroadcastFromEveryRank) {
  RunRanks([&](Communicator& communicator) {
    for (const DataType dtype : kAllTypes) {
      SCOPED_TRACE(ToString(dtype));
      const auto parts = AllValues(size(), 65, dtype);
      for (int root = 0; root < size(); ++root) {
        const Tensor x = MakeTensor(communicator.device(), dtype, {65},
                                    parts[static_cast<std::size_t>(communicator.rank())]);
        communicator.Broadcast(x, root);
        ExpectEqual(x, parts[static_cast<std::size_t>(root)]);
      }
    }
  });
}

TEST_P(CollectivesTest, AllToAllTransposesTheRanks) {
  constexpr std::int64_t kPart = 9;
  RunRanks([&](Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    for (const DataType dtype : kAllTypes) {
      SCOPED_TRACE(ToString(dtype));
      const auto parts = AllValues(size(), kPart * size(), dtype);
      const Tensor x = MakeTensor(communicator.device(), dtype, {size(), kPart},
                                  parts[static_cast<std::size_t>(rank)]);
      const Tensor out = MakeOutput(communicator.device(), dtype, {size(), kPart});
      communicator.AllToAll(x, out);
      std::vector<double> expected;
      for (const auto& part : parts) {
        const auto own = Slice(part, rank * kPart, kPart);
        expected.insert(expected.end(), own.begin(), own.end());
      }
      ExpectEqual(out, expected);
    }
  });
}

TEST_P(CollectivesTest, NothingAtAllMayBeReduced) {
  RunRanks([&](Communicator& communicator) {
    const Tensor nothing = Tensor::Empty({0}, DataType::kFloat32, communicator.device());
    communicator.AllReduce(nothing);
    communicator.AllGather(nothing, nothing);
    communicator.Broadcast(nothing, size() - 1);
    communicator.AllToAll(nothing, nothing);
  });
}

TEST_P(CollectivesTest, WorkGoesInOrderOfItsStream) {
  constexpr std::int64_t kCount = 200000;
  RunRanks([&](Communicator& communicator) {
    const Device device = communicator.device();
    DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
    const StreamHandle stream = impl.CreateStream(0);
    const EventHandle filled = impl.CreateEvent();
    const EventHandle reduced = impl.CreateEvent();
    {
      const Tensor x = Tensor::Empty({kCount}, DataType::kInt32, device);
      for (int round = 1; round <= 3; ++round) {
        impl.FillBytesAsync(x.raw_data(), round, x.nbytes(), CurrentStream(device));
        impl.RecordEvent(filled, CurrentStream(device));
        impl.StreamWaitEvent(stream, filled);
        communicator.AllReduce(x, ReduceOp::kSum, stream);
        communicator.AllReduce(x, ReduceOp::kMax, stream);
        impl.RecordEvent(reduced, stream);
        impl.StreamWaitEvent(CurrentStream(device), reduced);
        const double expected = 0x01010101 * round * size();
        const std::vector<double> values = ToDoubles(x);
        EXPECT_EQ(std::count(values.begin(), values.end(), expected), kCount) << "round " << round;
      }
    }
    impl.SynchronizeStream(stream);
    communicator.CheckErrors();
    impl.DestroyEvent(filled);
    impl.DestroyEvent(reduced);
    impl.DestroyStream(stream);
  });
}

TEST_P(CollectivesTest, MemoryLivesUntilTheStreamIsDone) {
  RunRanks([&](Communicator& communicator) {
    constexpr std::int64_t kCount = 50000;
    const Device device = communicator.device();
    DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
    const StreamHandle stream = impl.CreateStream(0);
    const EventHandle filled = impl.CreateEvent();
    std::vector<Tensor> sums;
    for (int round = 0; round < 20; ++round) {
      sums.push_back(Tensor::Empty({kCount}, DataType::kInt32, device));
      {
        const Tensor x = Tensor::Empty({kCount}, DataType::kInt32, device);
        impl.FillBytesAsync(x.raw_data(), 1, x.nbytes(), CurrentStream(device));
        impl.RecordEvent(filled, CurrentStream(device));
        impl.StreamWaitEvent(stream, filled);
        communicator.AllReduce(x, sums.back(), ReduceOp::kSum, stream);
      }
      // What comes next on the current stream may not have x's memory yet.
      const Tensor other = Tensor::Empty({kCount}, DataType::kInt32, device);
      impl.FillBytesAsync(other.raw_data(), 0x7f, other.nbytes(), CurrentStream(device));
    }
    impl.SynchronizeStream(stream);
    communicator.CheckErrors();
    for (const Tensor& sum : sums) {
      const std::vector<double> values = ToDoubles(sum);
      EXPECT_EQ(std::count(values.begin(), values.end(), 0x01010101 * size()), kCount);
    }
    sums.clear();
    impl.DestroyEvent(filled);
    impl.DestroyStream(stream);
  });
}

TEST_P(CollectivesTest, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  RunRanks([&](Communicator& communicator) {
    for (int round = 1; round <= 3; ++round) {
      ++arrived;
      communicator.Barrier();
      EXPECT_GE(arrived.load(), round * size());
      communicator.Barrier();
    }
  });
}

TEST_P(CollectivesTest, TwoRunsGiveTheSameBits) {
  const auto parts = AllValues(size(), 4099, DataType::kFloat32);
  std::vector<Tensor> results;
  for (int run = 0; run < 2; ++run) {
    RunRanks([&](Communicator& communicator) {
      const Tensor x = MakeTensor(communicator.device(), DataType::kFloat32, {4099},
                                  parts[static_cast<std::size_t>(communicator.rank())]);
      communicator.AllReduce(x, ReduceOp::kAverage);
      if (communicator.rank() == 0) results.push_back(x);
    });
  }
  ExpectSameBits(results[0], results[1]);
}

}  // namespace
}  // namespace infini_train::test
