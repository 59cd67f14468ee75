#include "infini_train/kernels/cpu/attention/decode.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "infini_train/kernels/cpu/gemm/scratch.h"
#include "infini_train/kernels/cpu/gemm/simd.h"
#include "infini_train/kernels/cpu/math.h"
#include "infini_train/kernels/cpu/parallel.h"

namespace infini_train::cpu {
namespace {

constexpr std::int64_t kKeyTile = 128;

// scores[s] = scale * q . key s, for as many keys as a vector has lanes.
template <typename T, typename S>
void ScoreTile(const T* q, const S* k, std::int64_t stride, std::int64_t count, int head_size,
               T scale, T* scores) {
  constexpr int kN = simd::kLanes<T>;
  std::int64_t s = 0;
  for (; s + kN <= count; s += kN) {
    simd::Vector<T> parts[kN];
    T rests[kN] = {};
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) {
      const S* key = k + (s + i) * stride;
      simd::Vector<T> sum = {};
      int x = 0;
      for (; x + kN <= head_size; x += kN)
        sum += simd::Load<T>(q + x) * simd::Load<T>(key + x);
      for (; x < head_size; ++x)
        rests[i] += q[x] * static_cast<T>(key[x]);
      parts[i] = sum;
    }
    simd::Transpose<T>(parts);
    for (int width = kN / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i)
        parts[i] += parts[i + width];
    }
    simd::Store(scores + s, (parts[0] + simd::Load<T>(rests)) * scale);
  }
  for (; s < count; ++s) {
    T sum = 0;
    for (int x = 0; x < head_size; ++x)
      sum += q[x] * static_cast<T>(k[s * stride + x]);
    scores[s] = sum * scale;
  }
}

template <typename S>
void RunRow(const HeadRows<S>& out, const HeadRows<ComputeType<S>>& lse, const HeadRows<S>& q,
            const HeadRows<S>& k, const HeadRows<S>& v, const AttentionParams& params,
            const AttentionGeometry& g, std::int64_t b, std::int64_t h, std::int64_t t) {
  using T = ComputeType<S>;
  static thread_local Scratch scratch;
  T* query = scratch.Get<T>(static_cast<std::size_t>(2 * g.head_size + 2 * kKeyTile));
  T* sums = query + g.head_size;
  T* scores = sums + g.head_size;
  T* factors = scores + kKeyTile;
  const S* q_row = q.At(b, h, t);
  for (int x = 0; x < g.head_size; ++x) {
    query[x] = static_cast<T>(q_row[x]);
    sums[x] = 0;
  }
  T max = -std::numeric_limits<T>::infinity();
  T sum = 0;
  const KeyRange visible = g.Visible(t);
  for (std::int64_t s0 = visible.begin; s0 < visible.end; s0 += kKeyTile) {
    const std::int64_t count = std::min(kKeyTile, visible.end - s0);
    const std::int64_t stride = v.stride();
    ScoreTile(query, k.At(b, h / g.group, s0), k.stride(), count, g.head_size,
              static_cast<T>(params.scale), scores);
    T new_max = max;
    for (std::int64_t s = 0; s < count; ++s)
      new_max = scores[s] > new_max ? scores[s] : new_max;
    const T shift = new_max == -std::numeric_limits<T>::infinity() ? T(0) : new_max;
    const T alpha = Exp(max - shift);
    max = new_max;
    T tile_sum = 0;
#pragma omp simd reduction(+ : tile_sum)
    for (std::int64_t s = 0; s < count; ++s) {
      scores[s] = Exp(scores[s] - shift);
      tile_sum += scores[s];
    }
    sum = sum * alpha + tile_sum;
    if (params.dropout_p > 0.0) {
      DropoutFactors(params, (b * g.heads + h) * g.queries + t, g.keys, s0, count, factors, 1);
      for (std::int64_t s = 0; s < count; ++s)
        scores[s] *= factors[s];
    }
    for (int x = 0; x < g.head_size; ++x)
      sums[x] *= alpha;
    const S* values = v.At(b, h / g.group, s0);
    for (std::int64_t s = 0; s < count; ++s) {
      const T weight = scores[s];
      const S* value = values + s * stride;
#pragma omp simd
      for (int x = 0; x < g.head_size; ++x)
        sums[x] += weight * static_cast<T>(value[x]);
    }
  }
  *lse.At(b, h, t) = visible.empty() ? -std::numeric_limits<T>::infinity() : max + std::log(sum);
  const T factor = visible.empty() ? T(0) : T(1) / sum;
  S* out_row = out.At(b, h, t);
  for (int x = 0; x < g.head_size; ++x)
    out_row[x] = static_cast<S>(sums[x] * factor);
}

}  // namespace

void DecodeAttention(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionParams& params, const AttentionGeometry& geometry) {
  DispatchFloating("Attention", q.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    const HeadRows<S> out_rows(out), q_rows(q), k_rows(k), v_rows(v);
    const HeadRows<ComputeType<S>> lse_rows(lse);
    const std::int64_t rows = geometry.batch * geometry.heads * geometry.queries;
    const std::int64_t grain = RowGrain(2 * geometry.keys * geometry.head_size);
    ParallelFor(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t head = row / geometry.queries;
        RunRow<S>(out_rows, lse_rows, q_rows, k_rows, v_rows, params, geometry,
                  head / geometry.heads, head % geometry.heads, row % geometry.queries);
      }
    });
  });
}

}  // namespace infini_train::cpu
