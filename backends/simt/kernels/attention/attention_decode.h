#pragma once

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_heads.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// Number of queries up to which DecodeAttention is the better way.
inline constexpr std::int64_t kDecodeQueries = 4;

/// The op Attention for a few queries on many keys, as in generation with a key/value cache: a
/// block for each query of each head, whose lanes share the keys.
void DecodeAttention(const Context& context, Tensor& out, Tensor& lse, const Tensor& q,
                     const Tensor& k, const Tensor& v, const AttentionShape& shape);

}  // namespace infini_train::simt
