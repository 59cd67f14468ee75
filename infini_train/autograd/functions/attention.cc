#include <fmt/format.h>

#include <cmath>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::SavedTensor;
using autograd::ShouldRecord;

AttentionParams Complete(AttentionParams params, std::int64_t head_dim, Device device) {
  if (params.scale == 0.0) params.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  if (params.dropout_p < 0.0 || params.dropout_p >= 1.0) {
    throw Error(fmt::format("attention dropout: expected 0 <= p < 1, got {}", params.dropout_p));
  }
  if (params.dropout_p > 0.0) params.dropout_state = detail::NextRandomState(nullptr, device);
  return params;
}

/// Cumulative lengths as the op takes them.
Tensor CheckedLengths(const Tensor& lengths, const Tensor& q, const Tensor& k) {
  if (!lengths.defined()) return {};
  if (lengths.dtype() != DataType::kInt32 || lengths.rank() != 1 || lengths.numel() == 0) {
    throw Error(fmt::format("attention: expected cumulative lengths int32 [N + 1], got {} {}",
                            ToString(lengths.dtype()), lengths.shape().ToString()));
  }
  if (lengths.device() != q.device()) {
    throw Error(fmt::format("attention: expected cumulative lengths on {}, got {}",
                            q.device().ToString(), lengths.device().ToString()));
  }
  if (q.size(0) != 1 || q.size(2) != k.size(2)) {
    throw Error(
        fmt::format("attention: expected cumulative lengths of a batch of 1 with as many "
                    "queries as keys, got q {} and k {}",
                    q.shape().ToString(), k.shape().ToString()));
  }
  return raw::Contiguous(lengths);
}

/// [B, H, T, D] stored as [B, T, H, D].
Tensor EmptyHeads(const Tensor& like) {
  const Dims& shape = like.shape();
  const Tensor memory =
      Tensor::Empty({shape[0], shape[2], shape[1], shape[3]}, like.dtype(), like.device());
  return memory.AsStrided(shape, {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1},
                          0);
}

Tensor LastStrideOne(const Tensor& x) {
  return x.strides().back() == 1 || x.shape().back() == 1 ? x : raw::Contiguous(x);
}

struct AttentionResult {
  Tensor out;
  Tensor lse;
};

AttentionResult RunAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& cumulative_lengths, const AttentionParams& params) {
  AttentionResult result;
  result.out = EmptyHeads(q);
  result.lse =
      Tensor::Empty({q.size(0), q.size(1), q.size(2)}, detail::StatDataType(q), q.device());
  Call<op::Attention>(result.out, result.lse, q, k, v, cumulative_lengths, params);
  return result;
}

struct PackedHeads {
  Tensor q, k, v;
};

/// Views on the query, key and value heads of qkv [B, T, (H + 2 K) D].
PackedHeads Unpack(const Tensor& qkv, std::int64_t num_heads, std::int64_t num_kv_heads) {
  const std::int64_t head_dim = qkv.size(2) / (num_heads + 2 * num_kv_heads);
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return qkv.AsStrided({qkv.size(0), count, qkv.size(1), head_dim},
                         {qkv.strides()[0], head_dim, qkv.strides()[1], 1},
                         qkv.offset() + first * head_dim);
  };
  return {heads(0, num_heads), heads(num_heads, num_kv_heads),
          heads(num_heads + num_kv_heads, num_kv_heads)};
}

/// [B, H, T, D] stored as [B, T, H, D] to [B, T, H D].
Tensor MergeHeads(const Tensor& x) {
  return x.AsStrided({x.size(0), x.size(2), x.size(1) * x.size(3)},
                     {x.strides()[0], x.strides()[2], 1}, x.offset());
}

Tensor SplitHeads(const Tensor& x, std::int64_t num_heads) {
  const std::int64_t head_dim = x.size(2) / num_heads;
  return x.AsStrided({x.size(0), num_heads, x.size(1), head_dim},
                     {x.strides()[0], head_dim, x.strides()[1], 1}, x.offset());
}

}  // namespace

Tensor ScaledDotProductAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 AttentionParams params, const Tensor& cumulative_lengths) {
  const bool valid = q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && k.shape() == v.shape() &&
                     q.size(0) == k.size(0) && q.size(3) == k.size(3) && k.size(1) > 0 &&
                     q.size(1) % k.size(1) == 0;
  if (!valid) {
    throw Error(
        fmt::format("attention: expected q [B, H, T, D] and k, v [B, K, S, D] with K dividing H, "
                    "got {}, {}, {}",
                    q.shape().ToString(), k.shape().ToString(), v.shape().ToString()));
  }
  const DataType dtype = PromoteTypes(detail::MatmulDataType("attention", q, k),
                                      detail::MatmulDataType("attention", k, v));
  const Tensor query = LastStrideOne(raw::To(q, dtype));
  const Tensor key = LastStrideOne(raw::To(k, dtype));
  const Tensor value = LastStrideOne(raw::To(v, dtype));
  const Tensor lengths = CheckedLengths(cumulative_lengths, q, k);
  params = Complete(params, q.size(3), q.device());
  auto [out, lse] = RunAttention(query, key, value, lengths, params);
  if (ShouldRecord({&q, &k, &v})) {
    Record(
        "Attention", {&out}, {&q, &k, &v},
        [query = SavedTensor(query), key = SavedTensor(key), value = SavedTensor(value),
         out = SavedTensor(out), lse = SavedTensor(lse), lengths = SavedTensor(lengths), params,
         q_dtype = q.dtype(), k_dtype = k.dtype(), v_dtype = v.dtype()](BackwardContext& context) {
          const Tensor q = query.Unpack();
          const Tensor k = key.Unpack();
          const Tensor v = value.Unpack();
          Tensor grad_q = EmptyHeads(q);
          Tensor grad_k = EmptyHeads(k);
          Tensor grad_v = EmptyHeads(v);
          Call<op::AttentionBackward>(grad_q, grad_k, grad_v,
                                      LastStrideOne(context.TakeGradOutput()), out.Unpack(),
                                      lse.Unpack(), q, k, v, lengths.Unpack(), params);
          if (context.NeedsGrad(0)) context.SetGrad(0, raw::To(grad_q, q_dtype));
          if (context.NeedsGrad(1)) context.SetGrad(1, raw::To(grad_k, k_dtype));
          if (context.NeedsGrad(2)) context.SetGrad(2, raw::To(grad_v, v_dtype));
        });
  }
  return out;
}

Tensor PackedAttention(const Tensor& qkv, std::int64_t num_attention_heads,
                       std::int64_t num_key_value_heads, AttentionParams params,
                       const Tensor& cumulative_lengths) {
  const std::int64_t heads = num_attention_heads + 2 * num_key_value_heads;
  if (qkv.rank() != 3 || num_key_value_heads <= 0 || num_attention_heads <= 0 ||
      num_attention_heads % num_key_value_heads != 0 || qkv.size(2) % heads != 0) {
    throw Error(fmt::format(
        "attention: expected qkv [B, T, (H + 2 K) D] for H = {} and K = {} dividing H, got {}",
        num_attention_heads, num_key_value_heads, qkv.shape().ToString()));
  }
  const Tensor packed = LastStrideOne(raw::To(qkv, detail::MatmulDataType("attention", qkv, qkv)));
  const auto [q, k, v] = Unpack(packed, num_attention_heads, num_key_value_heads);
  const Tensor lengths = CheckedLengths(cumulative_lengths, q, k);
  params = Complete(params, q.size(3), q.device());
  const auto [out, lse] = RunAttention(q, k, v, lengths, params);
  Tensor result = MergeHeads(out);
  if (ShouldRecord({&qkv})) {
    Record("PackedAttention", {&result}, {&qkv},
           [packed = SavedTensor(packed), out = SavedTensor(out), lse = SavedTensor(lse),
            lengths = SavedTensor(lengths), params, num_attention_heads, num_key_value_heads,
            dtype = qkv.dtype()](BackwardContext& context) {
             const Tensor qkv = packed.Unpack();
             const auto [q, k, v] = Unpack(qkv, num_attention_heads, num_key_value_heads);
             const Tensor grad_qkv = Tensor::Empty(qkv.shape(), qkv.dtype(), qkv.device());
             auto [grad_q, grad_k, grad_v] =
                 Unpack(grad_qkv, num_attention_heads, num_key_value_heads);
             const Tensor grad_out = LastStrideOne(context.TakeGradOutput());
             Call<op::AttentionBackward>(grad_q, grad_k, grad_v,
                                         SplitHeads(grad_out, num_attention_heads), out.Unpack(),
                                         lse.Unpack(), q, k, v, lengths.Unpack(), params);
             context.SetGrad(0, raw::To(grad_qkv, dtype));
           });
  }
  return result;
}

Tensor Rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  detail::CheckFloating("Rotary", x);
  if (x.rank() != 4 || x.size(3) % 2 != 0 || !(cos.shape() == Dims{x.size(2), x.size(3) / 2}) ||
      !(sin.shape() == cos.shape())) {
    throw Error(fmt::format(
        "Rotary: expected x [B, H, T, D] with even D and cos, sin [T, D/2], got {}, {}, {}",
        x.shape().ToString(), cos.shape().ToString(), sin.shape().ToString()));
  }
  const Tensor cosine = raw::To(cos, detail::StatDataType(x));
  const Tensor sine = raw::To(sin, detail::StatDataType(x));
  const auto rotate = [](const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved,
                         bool inverse) {
    Tensor out = EmptyHeads(x);
    Call<op::Rotary>(out, LastStrideOne(x), cos, sin, interleaved, inverse);
    return out;
  };
  Tensor out = rotate(x, cosine, sine, interleaved, false);
  if (ShouldRecord({&x})) {
    Record("Rotary", {&out}, {&x},
           [rotate, cosine = SavedTensor(cosine), sine = SavedTensor(sine),
            interleaved](BackwardContext& context) {
             context.SetGrad(0, rotate(context.TakeGradOutput(), cosine.Unpack(), sine.Unpack(),
                                       interleaved, true));
           });
  }
  return out;
}

}  // namespace infini_train
