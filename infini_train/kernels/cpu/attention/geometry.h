#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "infini_train/core/philox.h"
#include "infini_train/core/tensor.h"
#include "infini_train/kernels/cpu/gemm/pack.h"
#include "infini_train/kernels/cpu/random_state.h"
#include "infini_train/ops/params.h"

namespace infini_train::cpu {

/// A half-open range of keys.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool empty() const { return begin >= end; }
};

/// The sample that each of `positions` positions belongs to, from Attention's cumulative lengths;
/// nothing where these are undefined. Throws Error for values that are no such lengths.
std::vector<KeyRange> SamplesOf(const Tensor& cumulative_lengths, std::int64_t positions);

/// The sizes of an attention op and which query sees which key.
struct AttentionGeometry {
  AttentionGeometry(const Tensor& q, const Tensor& k, const Tensor& cumulative_lengths,
                    const AttentionParams& params)
      : batch(q.size(0)),
        heads(q.size(1)),
        kv_heads(k.size(1)),
        queries(q.size(2)),
        keys(k.size(2)),
        head_size(static_cast<int>(q.size(3))),
        group(kv_heads == 0 ? 1 : heads / kv_heads),
        causal(params.causal),
        window(params.sliding_window),
        samples(SamplesOf(cumulative_lengths, keys)) {}

  /// The keys that query t sees. Both bounds grow with t.
  KeyRange Visible(std::int64_t t) const {
    const KeyRange sample = samples.empty() ? KeyRange{0, keys} : samples[t];
    const std::int64_t last = causal ? std::min(sample.end, t + 1 + keys - queries) : sample.end;
    return {window > 0 ? std::max(sample.begin, last - window) : sample.begin, last};
  }
  /// Ranges of queries, in order, that see no key of each other: tiles within one keep what is not
  /// finite, and a weight of 0 does not, from reaching other samples.
  std::vector<KeyRange> QuerySegments() const;

  /// The keys that any of the queries in [first, last] sees.
  KeyRange VisibleToAny(std::int64_t first, std::int64_t last) const {
    return {Visible(first).begin, Visible(last).end};
  }

  std::int64_t batch, heads, kv_heads, queries, keys;
  int head_size;
  std::int64_t group;  ///< query heads of a key/value head
  bool causal;
  std::int64_t window;
  std::vector<KeyRange> samples;  ///< of each position; empty where there is one sample
};

/// Factors of dropout for the attention weights of query t (of flat row `row` = (b H + h) T + t)
/// and keys [begin, begin + count): 0 or 1 / (1 - p), written `stride` apart.
template <typename T>
void DropoutFactors(const AttentionParams& params, std::int64_t row, std::int64_t keys,
                    std::int64_t begin, std::int64_t count, T* factors, std::int64_t stride) {
  const Generator::State state = Resolve(params.dropout_state);
  const T keep = static_cast<T>(1.0 / (1.0 - params.dropout_p));
  std::int64_t element = row * keys + begin;
  for (std::int64_t i = 0; i < count;) {
    const auto words =
        Philox4x32(state.seed, state.offset, static_cast<std::uint64_t>(element / 4));
    for (std::int64_t word = element % 4; word < 4 && i < count; ++word, ++i, ++element)
      factors[i * stride] = UniformFromBits(words[word]) < params.dropout_p ? T(0) : keep;
  }
}

/// The rows of a [B, H, T, D] tensor, or the elements of a [B, H, T] one.
template <typename S>
class HeadRows {
 public:
  explicit HeadRows(const Tensor& x)
      : data_(x.data<S>()), batch_(x.strides()[0]), head_(x.strides()[1]), row_(x.strides()[2]) {}

  S* At(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data_ + b * batch_ + h * head_ + t * row_;
  }
  /// Distance of two rows of a head.
  std::int64_t stride() const { return row_; }

 private:
  S* data_;
  std::int64_t batch_, head_, row_;
};

/// Converts `count` columns of a [head_size][strip] matrix to rows of a tensor, `scales` times each
/// (null: 1). `buffer` has room for strip * head_size elements and kPackSlack.
template <typename T, typename S>
void WriteColumns(const T* columns, int head_size, int strip, int count, const T* scales, T* buffer,
                  S* rows, std::int64_t stride) {
  PackPanel(columns, strip, 1, head_size, head_size, strip, buffer);
  for (int j = 0; j < count; ++j) {
    const T scale = scales == nullptr ? T(1) : scales[j];
    for (int x = 0; x < head_size; ++x)
      rows[j * stride + x] = static_cast<S>(buffer[j * head_size + x] * scale);
  }
}

}  // namespace infini_train::cpu
