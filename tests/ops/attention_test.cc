// Attention and AttentionBackward against their definition in float64, and against differences.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "infini_train/core/device/graph.h"
#include "infini_train/core/philox.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using test::Tolerance;

struct Case {
  std::int64_t b = 1, h = 1, k = 1, t = 1, s = 1, d = 1;
  DataType dtype = DataType::kFloat32;
  AttentionParams params = {};
  bool packed = false;   // q, k and v are slices of one [B, T, (H + 2 K) D] buffer
  std::int64_t gap = 3;  // junk between heads; 8 elements of a half type keep vectors whole

  std::string ToString() const {
    return std::string(infini_train::ToString(dtype)) + " B " + std::to_string(b) + " H " +
           std::to_string(h) + " K " + std::to_string(k) + " T " + std::to_string(t) + " S " +
           std::to_string(s) + " D " + std::to_string(d) + (params.causal ? " causal" : "") +
           " window " + std::to_string(params.sliding_window) + " dropout " +
           std::to_string(params.dropout_p) + (packed ? " packed" : "") + " gap " +
           std::to_string(gap);
  }
};

// Values and, for each, the sum of the magnitudes of its terms.
struct Array {
  explicit Array(std::int64_t count = 0) : values(count, 0.0), scales(count, 0.0) {}
  void Add(std::int64_t i, double term) {
    values[i] += term;
    scales[i] += std::abs(term);
  }
  std::vector<double> values, scales;
};

struct Expected {
  Array out, grad_q, grad_k, grad_v;
  std::vector<double> lse;
  double score_scale = 0;  // the largest sum of the magnitudes of a score's terms
};

Expected Reference(const Case& c, const std::vector<double>& q, const std::vector<double>& k,
                   const std::vector<double>& v, const std::vector<double>& grad_out) {
  Expected result;
  result.out = result.grad_q = Array(c.b * c.h * c.t * c.d);
  result.grad_k = result.grad_v = Array(c.b * c.k * c.s * c.d);
  for (std::int64_t row = 0; row < c.b * c.h * c.t; ++row) {
    const std::int64_t t = row % c.t, head = row / c.t;
    const std::int64_t kv_head = head / c.h * c.k + head % c.h / (c.h / c.k);
    const std::int64_t last = c.params.causal ? std::min(c.s, t + 1 + c.s - c.t) : c.s;
    const std::int64_t first =
        c.params.sliding_window > 0 ? std::max<std::int64_t>(0, last - c.params.sliding_window) : 0;
    double max = -std::numeric_limits<double>::infinity();
    std::vector<double> scores(c.s), factors(c.s, 1.0);
    for (std::int64_t s = first; s < last; ++s) {
      double magnitude = 0;
      for (std::int64_t x = 0; x < c.d; ++x) {
        const double term = c.params.scale * q[row * c.d + x] * k[(kv_head * c.s + s) * c.d + x];
        scores[s] += term;
        magnitude += std::abs(term);
      }
      result.score_scale = std::max(result.score_scale, magnitude);
      max = std::max(max, scores[s]);
      if (c.params.dropout_p > 0) {
        const std::int64_t element = row * c.s + s;
        const auto words = Philox4x32(c.params.dropout_state.seed, c.params.dropout_state.offset,
                                      static_cast<std::uint64_t>(element / 4));
        factors[s] = UniformFromBits(words[element % 4]) < c.params.dropout_p
                         ? 0
                         : 1 / (1 - c.params.dropout_p);
      }
    }
    double sum = 0;
    for (std::int64_t s = first; s < last; ++s)
      sum += std::exp(scores[s] - max);
    result.lse.push_back(first < last ? max + std::log(sum) : max);
    std::vector<double> weights(c.s), grads(c.s);
    double delta = 0;
    double delta_scale = 0;
    for (std::int64_t s = first; s < last; ++s) {
      weights[s] = std::exp(scores[s] - max) / sum;
      for (std::int64_t x = 0; x < c.d; ++x) {
        const std::int64_t key = (kv_head * c.s + s) * c.d + x;
        result.out.Add(row * c.d + x, weights[s] * factors[s] * v[key]);
        const double grad = grad_out[row * c.d + x];
        result.grad_v.Add(key, weights[s] * factors[s] * grad);
        grads[s] += factors[s] * grad * v[key];
        delta_scale += weights[s] * std::abs(factors[s] * grad * v[key]);
      }
      delta += weights[s] * grads[s];
    }
    for (std::int64_t s = first; s < last; ++s) {
      double magnitude = delta_scale;
      for (std::int64_t x = 0; x < c.d; ++x)
        magnitude +=
            std::abs(factors[s] * grad_out[row * c.d + x] * v[(kv_head * c.s + s) * c.d + x]);
      const double grad = weights[s] * (grads[s] - delta) * c.params.scale;
      const double scale = weights[s] * magnitude * std::abs(c.params.scale);
      for (std::int64_t x = 0; x < c.d; ++x) {
        const std::int64_t query = row * c.d + x, key = (kv_head * c.s + s) * c.d + x;
        result.grad_q.values[query] += grad * k[key];
        result.grad_q.scales[query] += scale * std::abs(k[key]);
        result.grad_k.values[key] += grad * q[query];
        result.grad_k.scales[key] += scale * std::abs(q[query]);
      }
    }
  }
  return result;
}

class AttentionTest : public DeviceTest {
 protected:
  struct Heads {
    Tensor q, k, v;
  };

  // [B, H, T, D], [B, K, S, D] twice, with junk between what belongs to them.
  static Heads Make(const Case& c, const std::vector<double>* q, const std::vector<double>* k,
                    const std::vector<double>* v) {
    Heads result;
    if (c.packed) {
      const std::int64_t width = (c.h + 2 * c.k) * c.d;
      const Tensor all = test::MakeOutput(device(), c.dtype, {c.b, c.t, width});
      const auto slice = [&](std::int64_t first, std::int64_t heads) {
        return all.AsStrided({c.b, heads, c.t, c.d}, {c.t * width, c.d, width, 1}, first * c.d);
      };
      result = {slice(0, c.h), slice(c.h, c.k), slice(c.h + c.k, c.k)};
    } else {
      const auto strided = [&](std::int64_t heads, std::int64_t length) {
        const std::int64_t width = c.d + c.gap;
        const Tensor memory = test::MakeOutput(device(), c.dtype, {c.b, length, heads, width});
        return memory.AsStrided({c.b, heads, length, c.d},
                                {length * heads * width, width, heads * width, 1}, 0);
      };
      result = {strided(c.h, c.t), strided(c.k, c.s), strided(c.k, c.s)};
    }
    const auto fill = [&](Tensor& x, const std::vector<double>* values) {
      if (values == nullptr) return;
      const Tensor source = MakeTensor(device(), c.dtype, x.shape(), *values);
      Call<op::Copy>(x, source);
    };
    fill(result.q, q);
    fill(result.k, k);
    fill(result.v, v);
    return result;
  }

  struct Result {
    Heads inputs;
    Tensor out, lse, grad_out;
    Heads grads;
  };

  // With outputs that nothing was written to.
  static Result Prepare(const Case& c, const std::vector<double>& q, const std::vector<double>& k,
                        const std::vector<double>& v, const std::vector<double>& grad_out) {
    Result result;
    result.inputs = Make(c, &q, &k, &v);
    const Case other = [&] {
      Case copy = c;
      copy.packed = false;
      return copy;
    }();
    result.out = Make(other, nullptr, nullptr, nullptr).q;
    result.lse = test::MakeOutput(
        device(), c.dtype == DataType::kFloat64 ? c.dtype : DataType::kFloat32, {c.b, c.h, c.t});
    result.grad_out = Make(other, &grad_out, nullptr, nullptr).q;
    result.grads = Make(c, nullptr, nullptr, nullptr);
    return result;
  }

  static void Enqueue(const Case& c, Result& r) {
    Call<op::Attention>(r.out, r.lse, r.inputs.q, r.inputs.k, r.inputs.v, c.params);
    Call<op::AttentionBackward>(r.grads.q, r.grads.k, r.grads.v, r.grad_out, r.out, r.lse,
                                r.inputs.q, r.inputs.k, r.inputs.v, c.params);
  }

  static Result Run(const Case& c, const std::vector<double>& q, const std::vector<double>& k,
                    const std::vector<double>& v, const std::vector<double>& grad_out) {
    Result result = Prepare(c, q, k, v, grad_out);
    Enqueue(c, result);
    return result;
  }

  static void ExpectSameBits(const Result& a, const Result& b) {
    test::ExpectSameBits(a.out, b.out);
    test::ExpectSameBits(a.lse, b.lse);
    test::ExpectSameBits(a.grads.q, b.grads.q);
    test::ExpectSameBits(a.grads.k, b.grads.k);
    test::ExpectSameBits(a.grads.v, b.grads.v);
  }

  static void Check(const Case& c) {
    SCOPED_TRACE(c.ToString());
    const Result actual = Run(c, RandomValues(c.b * c.h * c.t * c.d, -1, 1, 1),
                              RandomValues(c.b * c.k * c.s * c.d, -1, 1, 2),
                              RandomValues(c.b * c.k * c.s * c.d, -1, 1, 3),
                              RandomValues(c.b * c.h * c.t * c.d, -1, 1, 4));
    const Expected expected = Reference(c, ToDoubles(actual.inputs.q), ToDoubles(actual.inputs.k),
                                        ToDoubles(actual.inputs.v), ToDoubles(actual.grad_out));
    // A score is off by d u times its scale, a weight by that in proportion; sums run over s keys,
    // d elements, or the t queries of the heads that share a key.
    const double score = (static_cast<double>(c.d) + 2) * expected.score_scale;
    const double forward = 2 * score + static_cast<double>(c.s) + 12;
    // Kernels may round weights to a half type before they multiply values by them.
    const bool half = SizeOf(c.dtype) == 2;
    const DataType compute = half ? c.dtype : DataType::kFloat32;
    ExpectClose(actual.out, expected.out.values,
                {.operations = half ? 1.5 : forward, .compute = compute}, expected.out.scales);
    ExpectClose(actual.lse, expected.lse,
                {.operations = forward, .scale = std::max(1.0, expected.score_scale)});
    // In the gradients, their own weights are rounded, the output that enters them is, and so may
    // be the parts of grad_k and grad_v of each head that shares them.
    const double backward =
        half ? 3.5 : 2 * forward + static_cast<double>(c.d + c.s + c.t * (c.h / c.k)) + 12;
    const Tolerance tolerance{.operations = backward, .compute = compute};
    ExpectClose(actual.grads.q, expected.grad_q.values, tolerance, expected.grad_q.scales);
    ExpectClose(actual.grads.k, expected.grad_k.values, tolerance, expected.grad_k.scales);
    ExpectClose(actual.grads.v, expected.grad_v.values, tolerance, expected.grad_v.scales);
  }

  static AttentionParams Causal(double scale = 0.3, std::int64_t window = 0, double dropout = 0) {
    return {.scale = scale,
            .causal = true,
            .sliding_window = window,
            .dropout_p = dropout,
            .dropout_state = {42, 7}};
  }
  static AttentionParams Full(double scale = 0.3, std::int64_t window = 0, double dropout = 0) {
    AttentionParams params = Causal(scale, window, dropout);
    params.causal = false;
    return params;
  }
};

TEST_P(AttentionTest, TypesMasksAndLayouts) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const bool packed : {false, true}) {
      Check({2, 4, 2, 37, 37, 16, dtype, Causal(), packed});
      Check({2, 4, 2, 37, 37, 16, dtype, Full(), packed});
      Check({1, 3, 3, 130, 130, 24, dtype, Causal(0.2, 50), packed});
      Check({1, 2, 1, 70, 70, 9, dtype, Full(0.5, 20), packed});
    }
  }
}

TEST_P(AttentionTest, HeadSizes) {
  for (const std::int64_t d : {1, 2, 3, 7, 8, 12, 13, 16, 31, 32, 33, 64, 65, 80, 128, 200, 256}) {
    Check({1, 2, 1, 20, 20, d, DataType::kFloat32, Causal(1.0 / 16)});
    Check({1, 2, 1, 20, 20, d, DataType::kFloat64, Causal(1.0 / 16)});
    Check({1, 2, 1, 3, 40, d, DataType::kBFloat16, Causal(1.0 / 16)});
  }
}

// Around the sizes of tiles, more and fewer keys than queries.
TEST_P(AttentionTest, Lengths) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64}) {
    for (const std::int64_t t : {1, 2, 4, 5, 11, 12, 13, 31, 32, 33, 47, 48, 49, 95, 96, 97}) {
      for (const std::int64_t s : {1, 12, 31, 96, 97, 193, 200}) {
        Check({1, 1, 1, t, s, 8, dtype, Causal()});
        Check({1, 1, 1, t, s, 8, dtype, Causal(0.3, 17)});
        Check({1, 1, 1, t, s, 8, dtype, Full()});
      }
    }
  }
}

// What the fused kernels of libraries take: half types, heads of whole vectors.
TEST_P(AttentionTest, HalfTypesInWholeVectors) {
  constexpr DataType kType = DataType::kBFloat16;
  for (const std::int64_t d : {64, 80, 96, 128, 256}) {
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    Check({2, 2, 1, 40, 40, d, kType, Causal(scale), true, 8});
    Check({1, 2, 2, 23, 70, d, kType, Causal(scale), false, 8});
  }
  for (const std::int64_t d : {64, 128}) {
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    for (const std::int64_t kv_heads : {1, 2, 8})
      Check({1, 8, kv_heads, 34, 34, d, kType, Causal(scale), true, 8});
    Check({1, 2, 1, 128, 128, d, kType, Causal(scale), true, 8});
    Check({1, 1, 1, 64, 128, d, kType, Full(scale), false, 8});
    Check({1, 1, 1, 130, 61, d, DataType::kFloat16, Full(scale), false, 8});
  }
  for (const std::int64_t window : {1, 20, 69, 200}) {
    Check({1, 2, 1, 70, 70, 64, kType, Causal(0.125, window), true, 8});
    Check({1, 2, 1, 33, 70, 64, DataType::kFloat16, Causal(0.125, window), false, 8});
  }
}

TEST_P(AttentionTest, GroupedHeads) {
  Check({2, 8, 2, 19, 19, 16, DataType::kFloat32, Causal()});
  Check({2, 6, 1, 19, 50, 16, DataType::kFloat32, Causal()});
  Check({3, 5, 5, 2, 50, 16, DataType::kBFloat16, Causal()});
  Check({2, 6, 3, 1, 300, 20, DataType::kFloat64, Causal()});
}

// Enough keys that the gradients are summed in several parts.
TEST_P(AttentionTest, ManyKeys) {
  Check({1, 2, 1, 70, 1300, 8, DataType::kFloat32, Causal()});
  Check({1, 1, 1, 40, 2200, 4, DataType::kBFloat16, Full()});
  Check({1, 1, 1, 1100, 1100, 4, DataType::kFloat32, Causal(0.3, 100)});
}

// A long cache, and more rows than a grid of the emulator has blocks.
TEST_P(AttentionTest, Generation) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t t : {1, 4}) {
      Check({1, 4, 2, t, 1000, 16, dtype, Causal()});
      Check({1, 2, 2, t, 65, 33, dtype, Causal(0.3, 64)});
    }
  }
  constexpr std::int64_t kRows = 66'000;
  const auto make = [](std::int64_t length, std::uint64_t seed) {
    return MakeTensor(device(), DataType::kFloat32, {kRows, 1, length, 1},
                      RandomValues(kRows * length, -1, 1, seed));
  };
  const Tensor q = make(1, 1), k = make(2, 2), v = make(2, 3);
  Tensor out = test::MakeOutput(device(), DataType::kFloat32, {kRows, 1, 1, 1});
  Tensor lse = test::MakeOutput(device(), DataType::kFloat32, {kRows, 1, 1});
  Call<op::Attention>(out, lse, q, k, v, Causal());
  const Expected expected =
      Reference({kRows, 1, 1, 1, 2, 1, DataType::kFloat32, Causal()}, ToDoubles(q), ToDoubles(k),
                ToDoubles(v), std::vector<double>(kRows, 0.0));
  ExpectClose(out, expected.out.values, {.operations = 30}, expected.out.scales);
  ExpectClose(lse, expected.lse, {.operations = 30, .scale = 1});
}

TEST_P(AttentionTest, DropoutCountsFromABaseInMemoryOfTheDevice) {
  const Tensor base = MakeTensor(device(), DataType::kInt64, {1}, {5});
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t t : {1, 37}) {  // One query has kernels of its own.
      const Case absolute = {1, 2, 1, t, 37, 16, dtype, Causal(0.3, 0, 0.4)};
      Case relative = absolute;
      relative.params.dropout_state.offset -= 5;
      relative.params.dropout_state.base = static_cast<const std::uint64_t*>(base.raw_data());
      const auto run = [](const Case& c) {
        const Result result =
            Run(c, RandomValues(c.h * c.t * c.d, -1, 1, 1), RandomValues(c.s * c.d, -1, 1, 2),
                RandomValues(c.s * c.d, -1, 1, 3), RandomValues(c.h * c.t * c.d, -1, 1, 4));
        return std::vector{ToDoubles(result.out), ToDoubles(result.grads.q),
                           ToDoubles(result.grads.k), ToDoubles(result.grads.v)};
      };
      EXPECT_EQ(run(relative), run(absolute)) << relative.ToString();
    }
  }
}

TEST_P(AttentionTest, Dropout) {
  for (const DataType dtype : test::kFloatingTypes) {
    Check({2, 2, 1, 50, 50, 8, dtype, Causal(0.3, 0, 0.25)});
    Check({2, 2, 1, 50, 61, 8, dtype, Causal(0.3, 20, 0.9)});
    Check({2, 2, 1, 3, 61, 8, dtype, Full(0.3, 0, 0.5)});
  }
}

TEST_P(AttentionTest, AQueryWithoutAKeyGivesZero) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const std::int64_t s : {0, 2}) {
      for (const std::int64_t t : {3, 20}) {
        const Case c{1, 2, 1, t, s, 8, dtype, Causal()};
        SCOPED_TRACE(c.ToString());
        const Result actual =
            Run(c, RandomValues(2 * t * 8, -1, 1, 1), RandomValues(s * 8, -1, 1, 2),
                RandomValues(s * 8, -1, 1, 3), RandomValues(2 * t * 8, -1, 1, 4));
        const std::vector<double> out = ToDoubles(actual.out), lse = ToDoubles(actual.lse),
                                  grad = ToDoubles(actual.grads.q);
        for (std::int64_t row = 0; row < 2 * t; ++row) {
          const bool empty = row % t < t - s;
          EXPECT_EQ(std::isinf(lse[row]), empty);
          for (std::int64_t x = 0; empty && x < 8; ++x) {
            EXPECT_EQ(out[row * 8 + x], 0.0);
            EXPECT_EQ(grad[row * 8 + x], 0.0);
          }
        }
        Check(c);
      }
    }
  }
}

TEST_P(AttentionTest, ZeroSizes) {
  Check({0, 2, 1, 5, 5, 8, DataType::kFloat32, Causal()});
  Check({2, 2, 1, 0, 5, 8, DataType::kFloat32, Causal()});
  Check({2, 2, 1, 5, 0, 8, DataType::kFloat32, Full()});
  Check({2, 0, 1, 5, 5, 8, DataType::kFloat32, Full()});
}

TEST_P(AttentionTest, LargeScoresStayFinite) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const std::int64_t t : {2, 40}) {
      const Case c{1, 1, 1, t, t, 4, dtype, Causal(50.0)};
      const std::int64_t count = t * 4;
      const Result actual = Run(c, RandomValues(count, -50, 50, 1), RandomValues(count, -50, 50, 2),
                                RandomValues(count, -1, 1, 3), RandomValues(count, -1, 1, 4));
      for (const Tensor& x :
           {actual.out, actual.lse, actual.grads.q, actual.grads.k, actual.grads.v}) {
        for (const double value : ToDoubles(x))
          EXPECT_TRUE(std::isfinite(value));
      }
    }
  }
}

TEST_P(AttentionTest, NanPassesThroughToTheQueriesThatSeeIt) {
  for (const std::int64_t t : {3, 40}) {
    const Case c{1, 1, 1, t, t, 4, DataType::kFloat32, Causal()};
    std::vector<double> k = RandomValues(t * 4, -1, 1, 2);
    k[(t - 1) * 4] = std::numeric_limits<double>::quiet_NaN();
    const Result actual = Run(c, RandomValues(t * 4, -1, 1, 1), k, RandomValues(t * 4, -1, 1, 3),
                              RandomValues(t * 4, -1, 1, 4));
    const std::vector<double> out = ToDoubles(actual.out);
    for (std::int64_t i = 0; i < t * 4; ++i)
      EXPECT_EQ(std::isnan(out[i]), i / 4 == t - 1);
  }
}

TEST_P(AttentionTest, SameBitsTwice) {
  const auto check = [](const Case& c) {
    SCOPED_TRACE(c.ToString());
    const auto run = [&] {
      return Run(c, RandomValues(8 * 150 * 16, -1, 1, 1), RandomValues(4 * 150 * 16, -1, 1, 2),
                 RandomValues(4 * 150 * 16, -1, 1, 3), RandomValues(8 * 150 * 16, -1, 1, 4));
    };
    ExpectSameBits(run(), run());
  };
  for (const DataType dtype : test::kFloatingTypes) {
    check({2, 4, 2, 150, 150, 16, dtype, Causal(0.3, 0, 0.1)});
    check({2, 4, 2, 150, 150, 16, dtype, Causal(), true, 8});
  }
}

TEST_P(AttentionTest, ReplaysGiveTheBitsOfCalls) {
  if (!DeviceGraph::IsSupported(device())) GTEST_SKIP() << "the device has no graphs";
  for (const std::int64_t t : {3, 40, 128}) {
    const Case c{2, 4, 2, t, t, 64, DataType::kBFloat16, Causal(0.125), true, 8};
    SCOPED_TRACE(c.ToString());
    const std::vector<double> q = RandomValues(8 * t * 64, -1, 1, 1),
                              k = RandomValues(4 * t * 64, -1, 1, 2),
                              v = RandomValues(4 * t * 64, -1, 1, 3),
                              grad_out = RandomValues(8 * t * 64, -1, 1, 4);
    const Result called = Run(c, q, k, v, grad_out);
    Result replayed = Prepare(c, q, k, v, grad_out);
    DeviceGraph graph(device(), [&] { Enqueue(c, replayed); });
    graph.Launch();
    ExpectSameBits(replayed, called);
  }
}

TEST_P(AttentionTest, GradientsMatchDifferences) {
  const std::int64_t count = 2 * 7 * 3, kv_count = 7 * 3;
  for (const AttentionParams& params : {Causal(0.8), Full(0.8), Causal(0.8, 3, 0.4)}) {
    const Case c{1, 2, 1, 7, 7, 3, DataType::kFloat64, params};
    SCOPED_TRACE(c.ToString());
    std::vector<double> q = RandomValues(count, -1, 1, 1);
    std::vector<double> k = RandomValues(kv_count, -1, 1, 2);
    std::vector<double> v = RandomValues(kv_count, -1, 1, 3);
    const std::vector<double> grad_out = RandomValues(count, -1, 1, 4);
    const Result analytic = Run(c, q, k, v, grad_out);
    const auto objective = [&] {
      const std::vector<double> out = ToDoubles(Run(c, q, k, v, grad_out).out);
      double sum = 0;
      for (std::int64_t i = 0; i < count; ++i)
        sum += out[i] * grad_out[i];
      return sum;
    };
    const auto check = [&](std::vector<double>& inputs, const Tensor& grad) {
      constexpr double kStep = 1e-5;  // errors: step^2 of the formula, u / step of the rounding
      const std::vector<double> grads = ToDoubles(grad);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const double value = inputs[i];
        inputs[i] = value + kStep;
        const double above = objective();
        inputs[i] = value - kStep;
        const double below = objective();
        inputs[i] = value;
        EXPECT_NEAR(grads[i], (above - below) / (2 * kStep), 1e-9);
      }
    };
    check(q, analytic.grads.q);
    check(k, analytic.grads.k);
    check(v, analytic.grads.v);
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(AttentionTest);

}  // namespace
}  // namespace infini_train
