#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "backends/simt/dialect.h"
#include "backends/simt/philox.h"
#include "backends/simt/tile.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

namespace infini_train::simt {

inline constexpr std::int64_t kMaxHeadSize = 256;

/// The rows of a [B, H, T, D] tensor, or the elements of a [B, H, T] one.
template <typename T>
struct HeadRows {
  HeadRows() = default;
  explicit HeadRows(const Tensor& x)
      : data(x.data<std::remove_const_t<T>>()),
        batch(x.strides()[0]),
        head(x.strides()[1]),
        row(x.strides()[2]) {}

  SIMT_DEVICE T* At(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data + b * batch + h * head + t * row;
  }

  T* data = nullptr;
  std::int64_t batch = 0, head = 0, row = 0;
};

/// A half-open range of keys or queries; empty where end <= begin.
struct HeadRange {
  std::int64_t begin, end;
};

/// Which attention weights are dropped: the element rule of AttentionParams.
struct AttentionDropout {
  explicit AttentionDropout(const AttentionParams& params)
      : state(params.dropout_state),
        threshold(static_cast<std::uint32_t>(std::ceil(params.dropout_p * 0x1p24))),
        keep(1.0 / (1.0 - params.dropout_p)) {}

  SIMT_DEVICE bool enabled() const { return threshold > 0; }

  /// Which of kCount elements in a row, the first at `element`, are kept: bit i for the i-th.
  template <int kCount>
  SIMT_DEVICE std::uint32_t Kept(std::int64_t element) const {
    static_assert(kCount <= 32);
    const std::uint64_t offset = PhiloxOffset(state);
    std::uint32_t words[4] = {};
    std::uint32_t kept = 0;
    SIMT_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const int word = static_cast<int>((element + i) & 3);
      if (i == 0 || word == 0) {
        const auto block =
            Philox4x32(state.seed, offset, static_cast<std::uint64_t>(element + i) >> 2);
        for (int j = 0; j < 4; ++j)
          words[j] = block[j];
      }
      // UniformFromBits(w) < p where its 24 bits, an integer, are less than p 2^24.
      if ((Select(words, word) >> 8) >= threshold) kept |= 1u << i;
    }
    return kept;
  }

  /// Factors (0 or 1 / (1 - p)) of kCount elements in a row, the first at `element`.
  template <int kCount, typename C>
  SIMT_DEVICE void Factors(std::int64_t element, C (&factors)[kCount]) const {
    const std::uint32_t kept = Kept<kCount>(element);
    SIMT_UNROLL
    for (int i = 0; i < kCount; ++i)
      factors[i] = (kept >> i & 1) != 0 ? static_cast<C>(keep) : C(0);
  }

  Generator::State state;
  std::uint32_t threshold;
  double keep;

 private:
  // Without an index that would move the words out of registers.
  SIMT_DEVICE static std::uint32_t Select(const std::uint32_t (&words)[4], int i) {
    const std::uint32_t low = (i & 1) != 0 ? words[1] : words[0];
    const std::uint32_t high = (i & 1) != 0 ? words[3] : words[2];
    return (i & 2) != 0 ? high : low;
  }
};

/// The first key and the end of the sample of each of `positions` positions, int32 [positions, 2],
/// from the op's cumulative lengths; undefined where these are. Whatever values they have, bounds
/// are positions.
Tensor AttentionSamples(const Context& context, const Tensor& cumulative_lengths,
                        std::int64_t positions);

/// The sizes of an attention op, and which query sees which key. `samples` as AttentionSamples
/// gives them, alive until the kernels are launched.
struct AttentionShape {
  AttentionShape(const Tensor& q, const Tensor& k, const Tensor& samples,
                 const AttentionParams& params)
      : batch(q.size(0)),
        heads(q.size(1)),
        kv_heads(k.size(1)),
        queries(q.size(2)),
        keys(k.size(2)),
        head_size(q.size(3)),
        group(kv_heads == 0 ? 1 : heads / kv_heads),
        window(params.sliding_window),
        causal(params.causal),
        scale(params.scale),
        samples(samples.defined() ? samples.data<std::int32_t>() : nullptr),
        dropout(params) {
    if (head_size > kMaxHeadSize) {
      throw Error("Attention: expected a head size of at most " + std::to_string(kMaxHeadSize) +
                  ", got " + std::to_string(head_size));
    }
  }

  /// The keys that query t sees. Both bounds grow with t.
  SIMT_DEVICE HeadRange VisibleKeys(std::int64_t t) const {
    const HeadRange sample = SampleOf(t, keys);
    const std::int64_t last =
        causal ? Min<std::int64_t>(sample.end, t + 1 + keys - queries) : sample.end;
    return {window > 0 ? Max<std::int64_t>(sample.begin, last - window) : sample.begin, last};
  }
  /// The end of the queries, or keys, from `first` of `positions` on that are of one sample, or
  /// behind the last. Tiles within them keep what is not finite, and a weight of 0 does not, from
  /// reaching other samples.
  SIMT_DEVICE std::int64_t SampleEnd(std::int64_t first, std::int64_t positions) const {
    const std::int64_t end = SampleOf(first, positions).end;
    return end > first ? end : positions;
  }
  /// How many of `positions` queries, or keys, from `first` on are of one sample and of its tile of
  /// kRows.
  template <int kRows>
  SIMT_DEVICE std::int64_t RowsOfTile(std::int64_t first, std::int64_t positions) const {
    return Min<std::int64_t>(SampleEnd(first, positions), first - first % kRows + kRows) - first;
  }
  /// The queries that may see any of the keys in [first, last].
  SIMT_DEVICE HeadRange QueriesOf(std::int64_t first, std::int64_t last) const {
    const HeadRange first_sample = SampleOf(first, queries);
    const HeadRange last_sample = SampleOf(last, queries);
    const std::int64_t shift = queries - keys;
    if (!causal) {
      const bool unseen = window > 0 && first_sample.end == last_sample.end &&
                          last + shift + window < last_sample.end;
      return {first_sample.begin, unseen ? first_sample.begin : last_sample.end};
    }
    return {
        Max<std::int64_t>(first_sample.begin, first + shift),
        window > 0 ? Min<std::int64_t>(last_sample.end, last + shift + window) : last_sample.end};
  }

  std::int64_t batch, heads, kv_heads, queries, keys, head_size;
  std::int64_t group;  ///< query heads of a key/value head
  std::int64_t window;
  bool causal;
  double scale;
  const std::int32_t* samples;  ///< or null: all positions are one sample
  AttentionDropout dropout;

 private:
  SIMT_DEVICE HeadRange SampleOf(std::int64_t position, std::int64_t positions) const {
    if (samples == nullptr) return {0, positions};
    const Vec<std::int32_t, 2> bounds =
        Load<2>(samples + 2 * Min<std::int64_t>(position, keys - 1));
    return {bounds[0], bounds[1]};
  }
};

/// Whether all rows of [.., D] tensors of one element type may be read in vectors of `width`.
inline bool HaveAlignedRows(int width, std::initializer_list<const Tensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [=](const Tensor* x) {
    const std::size_t bytes = width * SizeOf(x->dtype());
    bool aligned = reinterpret_cast<std::uintptr_t>(x->raw_data()) % bytes == 0;
    for (int i = 0; i < x->rank() - 1; ++i)
      aligned = aligned && x->strides()[i] % width == 0;
    return aligned && x->size(-1) % width == 0;
  });
}

/// Calls `body(std::integral_constant<int, bound>)`: the bound, 64, 128 or 256, that kernels are
/// compiled for and that the head size does not exceed.
template <typename Body>
void DispatchHeadSize(std::int64_t head_size, const Body& body) {
  if (head_size <= 64) {
    body(std::integral_constant<int, 64>{});
  } else if (head_size <= 128) {
    body(std::integral_constant<int, 128>{});
  } else {
    body(std::integral_constant<int, 256>{});
  }
}

}  // namespace infini_train::simt
