#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/philox.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

// Attention and AttentionBackward against their definition in float64.
namespace infini_train::test {

struct AttentionCase {
  std::int64_t b = 1, h = 1, k = 1, t = 1, s = 1, d = 1;
  DataType dtype = DataType::kFloat32;
  AttentionParams params = {};
  bool packed = false;   // q, k and v are slices of one [B, T, (H + 2 K) D] buffer
  std::int64_t gap = 3;  // junk between heads; 8 elements of a half type keep vectors whole
  std::vector<double> lengths = {};  // cumulative, of samples; empty: all positions are one

  std::string ToString() const {
    std::string text = std::string(infini_train::ToString(dtype)) + " B " + std::to_string(b) +
                       " H " + std::to_string(h) + " K " + std::to_string(k) + " T " +
                       std::to_string(t) + " S " + std::to_string(s) + " D " + std::to_string(d) +
                       (params.causal ? " causal" : "") + " window " +
                       std::to_string(params.sliding_window) + " dropout " +
                       std::to_string(params.dropout_p) + (packed ? " packed" : "") + " gap " +
                       std::to_string(gap) + (lengths.empty() ? "" : " samples until");
    for (const double end : lengths)
      text += " " + std::to_string(static_cast<std::int64_t>(end));
    return text;
  }

  // First key and end of the sample that a position belongs to; empty for none.
  std::pair<std::int64_t, std::int64_t> SampleOf(std::int64_t position) const {
    if (lengths.empty()) return {0, s};
    for (std::size_t i = 1; i < lengths.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(lengths[i - 1]);
      const auto end = static_cast<std::int64_t>(lengths[i]);
      if (position >= begin && position < end) return {begin, end};
    }
    return {0, 0};
  }
};

// Values and, for each, the sum of the magnitudes of its terms.
struct Terms {
  explicit Terms(std::int64_t count = 0) : values(count, 0.0), scales(count, 0.0) {}
  void Add(std::int64_t i, double term) {
    values[i] += term;
    scales[i] += std::abs(term);
  }
  std::vector<double> values, scales;
};

struct ExpectedAttention {
  Terms out, grad_q, grad_k, grad_v;
  std::vector<double> lse;
  double score_scale = 0;  // the largest sum of the magnitudes of a score's terms
};

inline ExpectedAttention ReferenceAttention(const AttentionCase& c, const std::vector<double>& q,
                                            const std::vector<double>& k,
                                            const std::vector<double>& v,
                                            const std::vector<double>& grad_out) {
  ExpectedAttention result;
  result.out = result.grad_q = Terms(c.b * c.h * c.t * c.d);
  result.grad_k = result.grad_v = Terms(c.b * c.k * c.s * c.d);
  for (std::int64_t row = 0; row < c.b * c.h * c.t; ++row) {
    const std::int64_t t = row % c.t, head = row / c.t;
    const std::int64_t kv_head = head / c.h * c.k + head % c.h / (c.h / c.k);
    const auto [begin, end] = c.SampleOf(t);
    const std::int64_t last = c.params.causal ? std::min(end, t + 1 + c.s - c.t) : end;
    const std::int64_t first =
        c.params.sliding_window > 0 ? std::max(begin, last - c.params.sliding_window) : begin;
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

class AttentionFixture : public DeviceTest {
 protected:
  struct Heads {
    Tensor q, k, v;
  };

  // [B, H, T, D], [B, K, S, D] twice, with junk between what belongs to them.
  static Heads Make(const AttentionCase& c, const std::vector<double>* q,
                    const std::vector<double>* k, const std::vector<double>* v) {
    Heads result;
    if (c.packed) {
      const std::int64_t width = (c.h + 2 * c.k) * c.d;
      const Tensor all = MakeOutput(device(), c.dtype, {c.b, c.t, width});
      const auto slice = [&](std::int64_t first, std::int64_t heads) {
        return all.AsStrided({c.b, heads, c.t, c.d}, {c.t * width, c.d, width, 1}, first * c.d);
      };
      result = {slice(0, c.h), slice(c.h, c.k), slice(c.h + c.k, c.k)};
    } else {
      const auto strided = [&](std::int64_t heads, std::int64_t length) {
        const std::int64_t width = c.d + c.gap;
        const Tensor memory = MakeOutput(device(), c.dtype, {c.b, length, heads, width});
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
    Tensor lengths, out, lse, grad_out;
    Heads grads;
  };

  // With outputs that nothing was written to.
  static Result Prepare(const AttentionCase& c, const std::vector<double>& q,
                        const std::vector<double>& k, const std::vector<double>& v,
                        const std::vector<double>& grad_out) {
    Result result;
    result.inputs = Make(c, &q, &k, &v);
    if (!c.lengths.empty()) {
      result.lengths = MakeTensor(device(), DataType::kInt32,
                                  {static_cast<std::int64_t>(c.lengths.size())}, c.lengths);
    }
    const AttentionCase other = [&] {
      AttentionCase copy = c;
      copy.packed = false;
      return copy;
    }();
    result.out = Make(other, nullptr, nullptr, nullptr).q;
    result.lse = MakeOutput(device(), c.dtype == DataType::kFloat64 ? c.dtype : DataType::kFloat32,
                            {c.b, c.h, c.t});
    result.grad_out = Make(other, &grad_out, nullptr, nullptr).q;
    result.grads = Make(c, nullptr, nullptr, nullptr);
    return result;
  }

  static void Enqueue(const AttentionCase& c, Result& r) {
    Call<op::Attention>(r.out, r.lse, r.inputs.q, r.inputs.k, r.inputs.v, r.lengths, c.params);
    Call<op::AttentionBackward>(r.grads.q, r.grads.k, r.grads.v, r.grad_out, r.out, r.lse,
                                r.inputs.q, r.inputs.k, r.inputs.v, r.lengths, c.params);
  }

  static Result Run(const AttentionCase& c, const std::vector<double>& q,
                    const std::vector<double>& k, const std::vector<double>& v,
                    const std::vector<double>& grad_out) {
    Result result = Prepare(c, q, k, v, grad_out);
    Enqueue(c, result);
    return result;
  }

  /// Random ones.
  struct Inputs {
    explicit Inputs(const AttentionCase& c)
        : q(RandomValues(c.b * c.h * c.t * c.d, -1, 1, 1)),
          k(RandomValues(c.b * c.k * c.s * c.d, -1, 1, 2)),
          v(RandomValues(c.b * c.k * c.s * c.d, -1, 1, 3)),
          grad_out(RandomValues(c.b * c.h * c.t * c.d, -1, 1, 4)) {}

    std::vector<double> q, k, v, grad_out;
  };

  static Result Run(const AttentionCase& c, const Inputs& x) {
    return Run(c, x.q, x.k, x.v, x.grad_out);
  }

  static void ExpectSameBits(const Result& a, const Result& b) {
    test::ExpectSameBits(a.out, b.out);
    test::ExpectSameBits(a.lse, b.lse);
    test::ExpectSameBits(a.grads.q, b.grads.q);
    test::ExpectSameBits(a.grads.k, b.grads.k);
    test::ExpectSameBits(a.grads.v, b.grads.v);
  }

  static void Check(const AttentionCase& c) {
    SCOPED_TRACE(c.ToString());
    const Result actual = Run(c, Inputs(c));
    const ExpectedAttention expected =
        ReferenceAttention(c, ToDoubles(actual.inputs.q), ToDoubles(actual.inputs.k),
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

  /// Compares the gradients of a float64 case with differences.
  static void CheckDifferences(const AttentionCase& c) {
    SCOPED_TRACE(c.ToString());
    Inputs x(c);
    const Result analytic = Run(c, x);
    const auto objective = [&] {
      const std::vector<double> out = ToDoubles(Run(c, x).out);
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i)
        sum += out[i] * x.grad_out[i];
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
    check(x.q, analytic.grads.q);
    check(x.k, analytic.grads.k);
    check(x.v, analytic.grads.v);
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

}  // namespace infini_train::test
