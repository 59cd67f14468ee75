#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "infini_train/kernels/cpu/attention/decode.h"
#include "infini_train/kernels/cpu/attention/geometry.h"
#include "infini_train/kernels/cpu/gemm/microkernel.h"
#include "infini_train/kernels/cpu/gemm/pack.h"
#include "infini_train/kernels/cpu/gemm/scratch.h"
#include "infini_train/kernels/cpu/math.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

// Flash attention (Dao, "FlashAttention-2", 2023) on transposed scores: queries lie along the
// vectors, so that the softmax over keys needs no sum across lanes, and the exponentials of a tile
// are, as they lie, the packed operand of the product with v.
template <typename S>
class ForwardBlock {
 public:
  using T = ComputeType<S>;

  // Queries that share packed keys and values: a few strips of one vector tile each.
  static constexpr std::int64_t kStrip = Tile<T>::kColumns;
  static constexpr std::int64_t kStrips = 3;
  static constexpr std::int64_t kQueryBlock = kStrips * kStrip;

  ForwardBlock(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
               const AttentionParams& params, const AttentionGeometry& geometry)
      : out_(out), lse_(lse), q_(q), k_(k), v_(v), params_(params), g_(geometry) {}

  // Queries [t0, t0 + count) of one head.
  void Run(std::int64_t b, std::int64_t h, std::int64_t t0, std::int64_t count) {
    Allocate();
    const std::int64_t d = g_.head_size;
    const std::int64_t strips = (count + kStrip - 1) / kStrip;
    for (std::int64_t i = 0; i < strips; ++i) {
      const std::int64_t width = std::min(kStrip, count - i * kStrip);
      PackPanel(q_.At(b, h, t0 + i * kStrip), q_.stride(), 1, static_cast<int>(width),
                static_cast<int>(kStrip), d, queries_ + i * d * kStrip);
    }
    std::fill_n(sums_, strips * d * kStrip, T(0));
    for (std::int64_t i = 0; i < strips; ++i) {
      states_[i].max.fill(-std::numeric_limits<T>::infinity());
      states_[i].sum.fill(T(0));
    }

    const KeyRange visible = g_.VisibleToAny(t0, t0 + count - 1);
    for (std::int64_t s0 = visible.begin; s0 < visible.end; s0 += kKeyTile) {
      const std::int64_t keys = std::min(kKeyTile, visible.end - s0);
      PackKeys(b, h / g_.group, s0, keys);
      for (std::int64_t i = 0; i < strips; ++i)
        Accumulate(i, (b * g_.heads + h) * g_.queries, t0 + i * kStrip,
                   std::min(kStrip, count - i * kStrip), s0, keys);
    }
    for (std::int64_t i = 0; i < strips; ++i)
      Write(i, b, h, t0 + i * kStrip, std::min(kStrip, count - i * kStrip));
  }

 private:
  static constexpr int kPanel = Tile<T>::kRows;
  static constexpr std::int64_t kKeyTile = 8 * kPanel;

  // Running maximum and sum of exponentials of a strip's queries.
  struct State {
    std::array<T, kStrip> max;
    std::array<T, kStrip> sum;
  };

  void Allocate() {
    static thread_local Scratch scratch;
    const std::int64_t d = g_.head_size;
    const std::int64_t slack = kPackSlack<T>;
    T* next = scratch.Get<T>(static_cast<std::size_t>(
        2 * (kQueryBlock * d + slack) + 2 * (kKeyTile * d + slack) + 2 * kKeyTile * kStrip));
    const auto take = [&](std::int64_t count) {
      T* result = next;
      next += count;
      return result;
    };
    queries_ = take(kQueryBlock * d + slack);
    sums_ = take(kQueryBlock * d + slack);
    keys_ = take(kKeyTile * d + slack);
    values_ = take(kKeyTile * d + slack);
    scores_ = take(kKeyTile * kStrip);
    factors_ = take(kKeyTile * kStrip);
  }

  // Keys in panels [d][panel]; values, head elements in panels, [key][panel].
  void PackKeys(std::int64_t b, std::int64_t h, std::int64_t s0, std::int64_t keys) {
    const std::int64_t d = g_.head_size;
    for (std::int64_t s = 0; s < keys; s += kPanel) {
      const int width = static_cast<int>(std::min<std::int64_t>(kPanel, keys - s));
      PackPanel(k_.At(b, h, s0 + s), k_.stride(), 1, width, width, d, keys_ + s * d);
    }
    for (std::int64_t i = 0; i < ValuePanels(); ++i) {
      const int first = ValuePanel(i);
      const int width = ValuePanel(i + 1) - first;
      PackPanel(v_.At(b, h, s0) + first, 1, v_.stride(), width, width, keys,
                values_ + first * keys);
    }
  }

  std::int64_t ValuePanels() const { return (g_.head_size + kPanel - 1) / kPanel; }
  // First head element of a panel; panels are of nearly equal width.
  int ValuePanel(std::int64_t i) const {
    return static_cast<int>(g_.head_size * i / ValuePanels());
  }

  // Takes a tile of keys into the results of a strip of queries.
  void Accumulate(std::int64_t strip, std::int64_t row, std::int64_t t0, std::int64_t count,
                  std::int64_t s0, std::int64_t keys) {
    const std::int64_t d = g_.head_size;
    const KeyRange visible = g_.VisibleToAny(t0, t0 + count - 1);
    // Whole panels of keys that any query of the strip sees.
    const std::int64_t begin = std::max<std::int64_t>(0, visible.begin - s0) / kPanel * kPanel;
    const std::int64_t end = std::min(
        keys, (std::max<std::int64_t>(0, visible.end - s0) + kPanel - 1) / kPanel * kPanel);
    if (begin >= end) return;
    for (std::int64_t s = begin; s < end; s += kPanel) {
      const std::int64_t width = std::min<std::int64_t>(kPanel, keys - s);
      kMicroKernels<T>[width - 1](d, keys_ + s * d, queries_ + strip * d * kStrip,
                                  scores_ + s * kStrip, kStrip, false);
    }
    const KeyRange seen_by_all = {g_.Visible(t0 + count - 1).begin, g_.Visible(t0).end};
    if (s0 + begin < seen_by_all.begin || s0 + end > seen_by_all.end)
      Mask(t0, count, s0, begin, end);

    T alpha[kStrip];
    Exponentials(states_[strip], begin, end, alpha);
    if (params_.dropout_p > 0.0) Drop(row + t0, count, s0, begin, end);

    T* sums = sums_ + strip * d * kStrip;
    for (std::int64_t x = 0; x < d; ++x) {
#pragma omp simd
      for (std::int64_t j = 0; j < kStrip; ++j)
        sums[x * kStrip + j] *= alpha[j];
    }
    for (std::int64_t i = 0; i < ValuePanels(); ++i) {
      const int first = ValuePanel(i);
      const int width = ValuePanel(i + 1) - first;
      kMicroKernels<T>[width - 1](end - begin, values_ + first * keys + begin * width,
                                  scores_ + begin * kStrip, sums + first * kStrip, kStrip, true);
    }
  }

  // Sets the scores of keys that a query does not see to -infinity.
  void Mask(std::int64_t t0, std::int64_t count, std::int64_t s0, std::int64_t begin,
            std::int64_t end) {
    std::int32_t first[kStrip] = {};
    std::int32_t last[kStrip] = {};
    for (std::int64_t j = 0; j < count; ++j) {
      const KeyRange visible = g_.Visible(t0 + j);
      first[j] = static_cast<std::int32_t>(std::clamp(visible.begin - s0, begin, end));
      last[j] = static_cast<std::int32_t>(std::clamp(visible.end - s0, begin, end));
    }
    for (std::int64_t s = begin; s < end; ++s) {
      T* scores = scores_ + s * kStrip;
      const auto key = static_cast<std::int32_t>(s);
#pragma omp simd
      for (std::int64_t j = 0; j < kStrip; ++j) {
        scores[j] =
            (key >= first[j]) & (key < last[j]) ? scores[j] : -std::numeric_limits<T>::infinity();
      }
    }
  }

  // Replaces scores by exponentials; alpha is the factor on what was summed before.
  void Exponentials(State& state, std::int64_t begin, std::int64_t end, T* alpha) {
    const T scale = static_cast<T>(params_.scale);
    T max[kStrip];
    T sum[kStrip] = {};
#pragma omp simd
    for (std::int64_t j = 0; j < kStrip; ++j)
      max[j] = state.max[j];
    for (std::int64_t s = begin; s < end; ++s) {
      T* scores = scores_ + s * kStrip;
#pragma omp simd
      for (std::int64_t j = 0; j < kStrip; ++j) {
        scores[j] *= scale;
        max[j] = scores[j] > max[j] ? scores[j] : max[j];
      }
    }
    // A query that has seen no key yet has nothing to shift by.
    T shift[kStrip];
#pragma omp simd
    for (std::int64_t j = 0; j < kStrip; ++j) {
      shift[j] = max[j] == -std::numeric_limits<T>::infinity() ? T(0) : max[j];
      alpha[j] = Exp(state.max[j] - shift[j]);
      state.max[j] = max[j];
    }
    for (std::int64_t s = begin; s < end; ++s) {
      T* scores = scores_ + s * kStrip;
#pragma omp simd
      for (std::int64_t j = 0; j < kStrip; ++j) {
        scores[j] = Exp(scores[j] - shift[j]);
        sum[j] += scores[j];
      }
    }
#pragma omp simd
    for (std::int64_t j = 0; j < kStrip; ++j)
      state.sum[j] = state.sum[j] * alpha[j] + sum[j];
  }

  void Drop(std::int64_t row, std::int64_t count, std::int64_t s0, std::int64_t begin,
            std::int64_t end) {
    std::fill(factors_ + begin * kStrip, factors_ + end * kStrip, T(0));
    for (std::int64_t j = 0; j < count; ++j) {
      DropoutFactors(params_, row + j, g_.keys, s0 + begin, end - begin,
                     factors_ + begin * kStrip + j, kStrip);
    }
    for (std::int64_t i = begin * kStrip; i < end * kStrip; ++i)
      scores_[i] *= factors_[i];
  }

  void Write(std::int64_t strip, std::int64_t b, std::int64_t h, std::int64_t t0,
             std::int64_t count) {
    const State& state = states_[strip];
    T factors[kStrip];
    for (std::int64_t j = 0; j < count; ++j) {
      const bool empty = g_.Visible(t0 + j).empty();
      *lse_.At(b, h, t0 + j) =
          empty ? -std::numeric_limits<T>::infinity() : state.max[j] + std::log(state.sum[j]);
      factors[j] = empty ? T(0) : T(1) / state.sum[j];
    }
    // The packed queries of the strip are no longer needed.
    const std::int64_t at = strip * g_.head_size * kStrip;
    WriteColumns(sums_ + at, g_.head_size, static_cast<int>(kStrip), static_cast<int>(count),
                 factors, queries_, out_.At(b, h, t0), out_.stride());
  }

  const HeadRows<S> out_;
  const HeadRows<T> lse_;
  const HeadRows<S> q_, k_, v_;
  const AttentionParams& params_;
  const AttentionGeometry& g_;
  std::array<State, kStrips> states_;
  T* queries_ = nullptr;  // [strip][d][kStrip]
  T* sums_ = nullptr;     // [strip][d][kStrip]
  T* keys_ = nullptr;
  T* values_ = nullptr;
  T* scores_ = nullptr;   // [key][kStrip]
  T* factors_ = nullptr;  // of dropout, likewise
};

void Attention(const KernelContext&, Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k,
               const Tensor& v, const Tensor& cumulative_lengths, const AttentionParams& params) {
  const AttentionGeometry geometry(q, k, cumulative_lengths, params);
  if (q.numel() == 0 && lse.numel() == 0) return;
  if (geometry.queries <= kDecodeQueries) {
    DecodeAttention(out, lse, q, k, v, params, geometry);
    return;
  }
  DispatchFloating("Attention", q.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    std::vector<KeyRange> blocks;
    for (const KeyRange& segment : geometry.QuerySegments()) {
      constexpr std::int64_t kBlock = ForwardBlock<S>::kQueryBlock;
      for (std::int64_t t0 = segment.begin; t0 < segment.end; t0 += kBlock)
        blocks.push_back({t0, std::min(t0 + kBlock, segment.end)});
    }
    const auto count = static_cast<std::int64_t>(blocks.size());
    ParallelTasks(geometry.batch * geometry.heads * count, [&](std::int64_t task) {
      // The last blocks of a causal head see the most keys: they start first.
      const KeyRange& block = blocks[static_cast<std::size_t>(count - 1 - task % count)];
      const std::int64_t head = task / count;
      ForwardBlock<S>(out, lse, q, k, v, params, geometry)
          .Run(head / geometry.heads, head % geometry.heads, block.begin, block.end - block.begin);
    });
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, Attention, &Attention);

}  // namespace infini_train::cpu
