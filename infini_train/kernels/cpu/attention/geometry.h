#pragma once

#include <algorithm>
#include <cstdint>

#include "infini_train/core/philox.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

namespace infini_train::cpu {

/// A half-open range of keys.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool empty() const { return begin >= end; }
};

/// The sizes of an attention op and which query sees which key.
struct AttentionGeometry {
  AttentionGeometry(const Tensor& q, const Tensor& k, const AttentionParams& params)
      : batch(q.size(0)),
        heads(q.size(1)),
        kv_heads(k.size(1)),
        queries(q.size(2)),
        keys(k.size(2)),
        head_size(static_cast<int>(q.size(3))),
        group(kv_heads == 0 ? 1 : heads / kv_heads),
        causal(params.causal),
        window(params.sliding_window) {}

  /// The keys that query t sees. Both bounds grow with t.
  KeyRange Visible(std::int64_t t) const {
    const std::int64_t last = causal ? std::min(keys, t + 1 + keys - queries) : keys;
    const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, last - window) : 0;
    return {first, last};
  }
  /// The keys that any of the queries in [first, last] sees.
  KeyRange VisibleToAny(std::int64_t first, std::int64_t last) const {
    return {Visible(first).begin, Visible(last).end};
  }

  std::int64_t batch, heads, kv_heads, queries, keys;
  int head_size;
  std::int64_t group;  ///< query heads of a key/value head
  bool causal;
  std::int64_t window;
};

/// Factors of dropout for the attention weights of query t (of flat row `row` = (b H + h) T + t)
/// and keys [begin, begin + count): 0 or 1 / (1 - p), written `stride` apart.
template <typename T>
void DropoutFactors(const AttentionParams& params, std::int64_t row, std::int64_t keys,
                    std::int64_t begin, std::int64_t count, T* factors, std::int64_t stride) {
  const T keep = static_cast<T>(1.0 / (1.0 - params.dropout_p));
  std::int64_t element = row * keys + begin;
  for (std::int64_t i = 0; i < count;) {
    const auto words = Philox4x32(params.dropout_state.seed, params.dropout_state.offset,
                                  static_cast<std::uint64_t>(element / 4));
    for (std::int64_t word = element % 4; word < 4 && i < count; ++word, ++i, ++element)
      factors[i * stride] = UniformFromBits(words[word]) < params.dropout_p ? T(0) : keep;
  }
}

/// Address of element (b, h, t, 0) of a [B, H, T, D] tensor.
template <typename S>
S* HeadRow(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t t) {
  return x.data<S>() + b * x.strides()[0] + h * x.strides()[1] + t * x.strides()[2];
}

}  // namespace infini_train::cpu
