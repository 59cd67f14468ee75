#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectSameBits;
using test::kFloatingTypes;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;

struct Problem {
  std::int64_t heads, kv_heads, capacity, size;
  std::vector<double> lengths;
  bool rotates = true, norms = false;
  std::int64_t window = 0;
};

class CachedAttentionTest : public DeviceTest {
 protected:
  struct Tensors {
    Tensor out, keys, values, qkv, lengths, cos, sin, query_norm, key_norm;

    void Run(const AttentionParams& params) {
      Call<op::CachedAttention>(out, keys, values, qkv, lengths, cos, sin, query_norm, key_norm,
                                1e-5, params);
    }
  };

  static Tensors Make(const Problem& p, DataType dtype, Device device) {
    const auto batch = static_cast<std::int64_t>(p.lengths.size());
    const DataType stat = PromoteTypes(dtype, DataType::kFloat32);
    const auto random = [&](const Dims& shape, DataType type, std::uint64_t seed) {
      return MakeTensor(device, type, shape, RandomValues(Numel(shape), -1, 1, seed));
    };
    Tensors t;
    t.out = MakeOutput(device, dtype, {batch, p.heads * p.size});
    t.keys = random({batch, p.kv_heads, p.capacity, p.size}, dtype, 1);
    t.values = random({batch, p.kv_heads, p.capacity, p.size}, dtype, 2);
    t.qkv = random({batch, (p.heads + 2 * p.kv_heads) * p.size}, dtype, 3);
    t.lengths = MakeTensor(device, DataType::kInt32, {batch}, p.lengths);
    if (p.rotates) {
      t.cos = random({p.capacity, p.size / 2}, stat, 4);
      t.sin = random({p.capacity, p.size / 2}, stat, 5);
    }
    if (p.norms) {
      t.query_norm = random({p.size}, dtype, 6);
      t.key_norm = random({p.size}, dtype, 7);
    }
    return t;
  }

  /// Against the CPU in float64, on the values that the tensors have.
  static void Check(const Problem& p, DataType dtype) {
    SCOPED_TRACE(testing::Message() << ToString(dtype) << " heads " << p.heads << " of "
                                    << p.kv_heads << " x " << p.size << " capacity " << p.capacity
                                    << (p.norms ? " norms" : "") << " window " << p.window);
    const AttentionParams params{.scale = 1 / std::sqrt(static_cast<double>(p.size)),
                                 .sliding_window = p.window};
    Tensors tensors = Make(p, dtype, device());
    Tensors wide = Make(p, DataType::kFloat64, {});
    for (const auto member : {&Tensors::keys, &Tensors::values, &Tensors::qkv, &Tensors::cos,
                              &Tensors::sin, &Tensors::query_norm, &Tensors::key_norm}) {
      if ((tensors.*member).defined()) {
        wide.*member = MakeTensor({}, DataType::kFloat64, (tensors.*member).shape(),
                                  ToDoubles(tensors.*member));
      }
    }
    tensors.Run(params);
    wide.Run(params);
    // Queries and keys, and the weights of positions, may be rounded on their way.
    const bool is_half = SizeOf(dtype) == 2;
    const double scale = p.norms ? 8 : 4;
    const auto tolerance = [&](double operations, double half_operations) {
      return test::Tolerance{.operations = is_half ? half_operations : operations,
                             .scale = scale,
                             .compute = is_half ? dtype : DataType::kFloat32};
    };
    ExpectClose(tensors.keys, ToDoubles(wide.keys), tolerance(40, 2));
    ExpectClose(tensors.values, ToDoubles(wide.values), {.operations = 1});
    ExpectClose(tensors.out, ToDoubles(wide.out),
                tolerance(40 + static_cast<double>(p.capacity + p.size), 6));
  }
};

// What the cache should hold and the queries see, by the definition.
TEST_P(CachedAttentionTest, IsAttentionOverThePositionsHeld) {
  const Problem p{2, 1, 6, 4, {3}};
  Tensors t = Make(p, DataType::kFloat64, device());
  const std::vector<double> old_keys = ToDoubles(t.keys), old_values = ToDoubles(t.values);
  const std::vector<double> qkv = ToDoubles(t.qkv), cos = ToDoubles(t.cos), sin = ToDoubles(t.sin);
  t.Run({.scale = 0.5});
  const auto rotated = [&](std::size_t head) {
    std::vector<double> result(4);
    for (std::size_t j = 0; j < 2; ++j) {
      const double a = qkv[head * 4 + j], b = qkv[head * 4 + j + 2];
      result[j] = a * cos[3 * 2 + j] - b * sin[3 * 2 + j];
      result[j + 2] = a * sin[3 * 2 + j] + b * cos[3 * 2 + j];
    }
    return result;
  };
  std::vector<double> keys = old_keys, values = old_values;
  for (std::size_t i = 0; i < 4; ++i) {
    keys[3 * 4 + i] = rotated(2)[i];
    values[3 * 4 + i] = qkv[3 * 4 + i];
  }
  ExpectClose(t.keys, keys, {.operations = 8, .scale = 2});
  ExpectClose(t.values, values, {.operations = 1});
  std::vector<double> expected;
  for (std::size_t h = 0; h < 2; ++h) {
    const std::vector<double> q = rotated(h);
    std::vector<double> weights(4);
    double total = 0;
    for (std::size_t s = 0; s < 4; ++s) {
      double score = 0;
      for (std::size_t i = 0; i < 4; ++i)
        score += q[i] * keys[s * 4 + i];
      total += weights[s] = std::exp(0.5 * score);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      double sum = 0;
      for (std::size_t s = 0; s < 4; ++s)
        sum += weights[s] * values[s * 4 + i] / total;
      expected.push_back(sum);
    }
  }
  ExpectClose(t.out, expected, {.operations = 64, .scale = 2});
}

TEST_P(CachedAttentionTest, TypesAndHeads) {
  for (const DataType dtype : kFloatingTypes) {
    for (const bool norms : {false, true}) {
      Check({4, 2, 40, 16, {17}, true, norms}, dtype);
      Check({3, 3, 20, 24, {0, 19}, true, norms}, dtype);
    }
    Check({2, 1, 30, 10, {5}, false}, dtype);
  }
  Check({9, 1, 40, 64, {30}, true, true}, DataType::kBFloat16);
  Check({16, 2, 24, 128, {23}}, DataType::kBFloat16);
  Check({6, 2, 24, 256, {11}}, DataType::kFloat32);
  Check({2, 1, 12, 38, {7}, true, true}, DataType::kFloat32);
  // More heads than devices have multiprocessors.
  Check({72, 8, 20, 16, {17, 3, 0}}, DataType::kBFloat16);
}

// Rows that blocks read ahead, several steps of them, more than they have room for, and splits.
TEST_P(CachedAttentionTest, ReadsAhead) {
  for (const double length : {0., 127., 128., 300., 511.})
    Check({2, 1, 512, 16, {length}}, DataType::kBFloat16);
  for (const double length : {5., 600., 1023.})
    Check({3, 1, 1024, 16, {length}}, DataType::kBFloat16);
  for (const double length : {5., 700., 1299.}) {
    Check({2, 1, 1300, 16, {length}}, DataType::kBFloat16);
    Check({5, 1, 1300, 128, {length}}, DataType::kBFloat16);
    Check({2, 1, 1300, 16, {length}, true, false, 333}, DataType::kFloat16);
  }
  Check({3, 1, 300, 38, {290, 11}, true, true}, DataType::kBFloat16);
  Check({2, 1, 200, 128, {150}}, DataType::kFloat16);
  Check({5, 1, 150, 256, {140}}, DataType::kBFloat16);
}

// About the positions that a block takes at once, and the splits.
TEST_P(CachedAttentionTest, Lengths) {
  for (const double length : {0., 1., 62., 63., 64., 65., 127., 128., 200., 299.})
    Check({2, 1, 300, 16, {length}}, DataType::kFloat32);
  Check({4, 2, 300, 16, {299, 0, 130, 64}}, DataType::kFloat32);
  Check({4, 2, 1100, 16, {1099, 0, 130, 640}}, DataType::kFloat32);
}

TEST_P(CachedAttentionTest, SlidingWindows) {
  for (const std::int64_t window : {1, 2, 64, 65, 100, 1000})
    Check({2, 1, 200, 16, {190, 3}, true, false, window}, DataType::kFloat32);
}

TEST_P(CachedAttentionTest, SameBitsAgain) {
  const Problem p{8, 2, 200, 64, {150}};
  Tensors first = Make(p, DataType::kBFloat16, device());
  Tensors second = Make(p, DataType::kBFloat16, device());
  first.Run({.scale = 0.125});
  second.Run({.scale = 0.125});
  ExpectSameBits(first.out, second.out);
  ExpectSameBits(first.keys, second.keys);
}

// The CPU's kernel sees the lengths, for itself or for a device that has none.
TEST_P(CachedAttentionTest, LengthsWithoutRoomWriteNothing) {
  const bool by_cpu = device().is_cpu() || !HasKernel(device().type(), OpId::kCachedAttention);
  for (const double length : {-1., 8., 1e9}) {
    SCOPED_TRACE(length);
    Tensors t = Make({2, 1, 8, 4, {length}}, DataType::kFloat32, device());
    const std::vector<double> keys = ToDoubles(t.keys);
    if (by_cpu) {
      EXPECT_THROW(t.Run({.scale = 1}), Error);
    } else {
      t.Run({.scale = 1});
      for (const double value : ToDoubles(t.out))
        EXPECT_TRUE(std::isnan(value));
    }
    EXPECT_EQ(ToDoubles(t.keys), keys);
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(CachedAttentionTest);

}  // namespace
}  // namespace infini_train
