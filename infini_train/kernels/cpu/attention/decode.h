#pragma once

#include "infini_train/core/tensor.h"
#include "infini_train/kernels/cpu/attention/geometry.h"

namespace infini_train::cpu {

/// Number of queries up to which DecodeAttention is the better way.
inline constexpr std::int64_t kDecodeQueries = 4;

/// The op Attention for a few queries on many keys, as in generation with a key/value cache: reads
/// each key and value once per query head, without packing them.
void DecodeAttention(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionParams& params, const AttentionGeometry& geometry);

}  // namespace infini_train::cpu
