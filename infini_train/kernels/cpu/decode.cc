#include <fmt/format.h>

#include <cstdint>
#include <span>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

/// Ops of generation, by the ops that they are made of.
namespace infini_train::cpu {
namespace {

void NormGemv(const KernelContext&, Tensor& out, const Tensor& x, const Tensor& norm_weight,
              const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps,
              bool gated) {
  if (out.numel() == 0) return;
  ComposeNormGemv(out, x, norm_weight, weight, bias, residual, eps, gated);
}

/// `count` heads of `size` elements from `first` on in a row of memory, as [1, count, 1, size].
Tensor HeadsOf(const Tensor& memory, std::int64_t first, std::int64_t count, std::int64_t size) {
  return memory.AsStrided({1, count, 1, size}, {count * size, size, count * size, 1},
                          memory.offset() + first);
}

/// Positions [begin, begin + count) of sequence b of a cache [B, K, S, D], as [1, K, count, D].
Tensor PositionsOf(const Tensor& cache, std::int64_t b, std::int64_t begin, std::int64_t count) {
  const Dims& strides = cache.strides();
  return cache.AsStrided({1, cache.size(1), count, cache.size(3)}, strides,
                         cache.offset() + b * strides[0] + begin * strides[2]);
}

Tensor RowOf(const Tensor& angles, std::int64_t position) {
  return angles.AsStrided({1, angles.size(1)}, angles.strides(),
                          angles.offset() + position * angles.strides()[0]);
}

void CachedAttention(const KernelContext&, Tensor& out, Tensor& keys, Tensor& values,
                     const Tensor& qkv, const Tensor& lengths, const Tensor& cos, const Tensor& sin,
                     const Tensor& query_norm, const Tensor& key_norm, double norm_eps,
                     const AttentionParams& params) {
  const std::int64_t size = keys.size(3);
  const std::int64_t kv_heads = keys.size(1);
  const std::int64_t num_heads = size == 0 ? 0 : out.size(1) / size;
  const std::int64_t positions =
      cos.defined() && cos.size(0) < keys.size(2) ? cos.size(0) : keys.size(2);
  const DataType stat = PromoteTypes(qkv.dtype(), DataType::kFloat32);
  const std::span held(lengths.data<std::int32_t>(), static_cast<std::size_t>(qkv.size(0)));
  for (std::int64_t b = 0; b < qkv.size(0); ++b) {
    const std::int64_t length = held[static_cast<std::size_t>(b)];
    if (length < 0 || length >= positions) {
      throw Error(fmt::format(
          "CachedAttention: expected lengths from 0 to {}, one less than there is room for, got {}",
          positions - 1, length));
    }
    const std::int64_t row = b * qkv.size(1);
    const auto prepare = [&](Tensor heads, const Tensor& x, const Tensor& norm) {
      if (!cos.defined()) {
        Call<op::Copy>(heads, x);
      } else if (norm.defined()) {
        Tensor rstd = Tensor::Empty({1, x.size(1), 1}, stat);
        Call<op::NormRotary>(heads, rstd, x, norm, RowOf(cos, length), RowOf(sin, length),
                             norm_eps);
      } else {
        Call<op::Rotary>(heads, x, RowOf(cos, length), RowOf(sin, length), false, false);
      }
    };
    const Tensor queries = Tensor::Empty({1, num_heads, 1, size}, qkv.dtype());
    prepare(queries, HeadsOf(qkv, row, num_heads, size), query_norm);
    prepare(PositionsOf(keys, b, length, 1), HeadsOf(qkv, row + num_heads * size, kv_heads, size),
            key_norm);
    Tensor value = PositionsOf(values, b, length, 1);
    Call<op::Copy>(value, HeadsOf(qkv, row + (num_heads + kv_heads) * size, kv_heads, size));
    Tensor result = HeadsOf(out, b * num_heads * size, num_heads, size);
    Tensor lse = Tensor::Empty({1, num_heads, 1}, stat);
    Call<op::Attention>(result, lse, queries, PositionsOf(keys, b, 0, length + 1),
                        PositionsOf(values, b, 0, length + 1), Tensor(), params);
  }
}

}  // namespace

REGISTER_KERNEL(kCPU, NormGemv, &NormGemv);
REGISTER_KERNEL(kCPU, CachedAttention, &CachedAttention);

}  // namespace infini_train::cpu
