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

void CheckPacked(const Tensor& qkv, std::int64_t num_heads, std::int64_t num_kv_heads) {
  const std::int64_t heads = num_heads + 2 * num_kv_heads;
  if (qkv.rank() != 3 || num_kv_heads <= 0 || num_heads <= 0 || num_heads % num_kv_heads != 0 ||
      qkv.size(2) % heads != 0) {
    throw Error(fmt::format(
        "attention: expected qkv [B, T, (H + 2 K) D] for H = {} and K = {} dividing H, got {}",
        num_heads, num_kv_heads, qkv.shape().ToString()));
  }
}

/// Views on heads [first, first + count) of packed [B, T, heads * D]: [B, count, T, D].
Tensor TakeHeads(const Tensor& packed, std::int64_t first, std::int64_t count,
                 std::int64_t head_dim) {
  return packed.AsStrided({packed.size(0), count, packed.size(1), head_dim},
                          {packed.strides()[0], head_dim, packed.strides()[1], 1},
                          packed.offset() + first * head_dim);
}

struct PackedHeads {
  Tensor q, k, v;
};

/// Views on the query, key and value heads of qkv [B, T, (H + 2 K) D].
PackedHeads Unpack(const Tensor& qkv, std::int64_t num_heads, std::int64_t num_kv_heads) {
  const std::int64_t head_dim = qkv.size(2) / (num_heads + 2 * num_kv_heads);
  return {TakeHeads(qkv, 0, num_heads, head_dim), TakeHeads(qkv, num_heads, num_kv_heads, head_dim),
          TakeHeads(qkv, num_heads + num_kv_heads, num_kv_heads, head_dim)};
}

/// [B, H, T, D] stored as [B, T, H, D] to [B, T, H D].
Tensor MergeHeads(const Tensor& x) {
  return x.AsStrided({x.size(0), x.size(2), x.size(1) * x.size(3)},
                     {x.strides()[0], x.strides()[2], 1}, x.offset());
}

Tensor SplitHeads(const Tensor& x, std::int64_t num_heads) {
  return TakeHeads(x, 0, num_heads, x.size(2) / num_heads);
}

/// What backward needs of the norms of query and key heads.
struct HeadNorms {
  SavedTensor packed;  ///< the projection before the norms
  SavedTensor query_norm, key_norm;
  SavedTensor query_rstd, key_rstd;
};

/// The way of a projection's query and key heads to attention and of their gradients back.
class RotaryProjection {
 public:
  /// Throws Error unless the angles and norms fit `packed`.
  RotaryProjection(const Tensor& packed, std::int64_t num_heads, std::int64_t num_kv_heads,
                   const RotaryHeads& rotary)
      : num_heads_(num_heads),
        num_kv_heads_(num_kv_heads),
        head_dim_(packed.size(2) / (num_heads + 2 * num_kv_heads)) {
    const Dims angles = {packed.size(1), head_dim_ / 2};
    if (head_dim_ % 2 != 0 || !(rotary.cos.shape() == angles) || !(rotary.sin.shape() == angles)) {
      throw Error(
          fmt::format("rotary attention: expected heads of an even size and cos, sin "
                      "[{}, {}], got {} elements, {}, {}",
                      angles[0], angles[1], head_dim_, rotary.cos.shape().ToString(),
                      rotary.sin.shape().ToString()));
    }
    has_norms_ = rotary.query_norm.defined();
    for (const Tensor* norm : {&rotary.query_norm, &rotary.key_norm}) {
      if (norm->defined() != has_norms_ || (has_norms_ && !(norm->shape() == Dims{head_dim_}))) {
        throw Error(
            fmt::format("rotary attention: expected norms of queries and keys [{}], or "
                        "none, got {}",
                        head_dim_, norm->defined() ? norm->shape().ToString() : "none"));
      }
    }
    const DataType stat = detail::StatDataType(packed);
    cos_ = LastStrideOne(raw::To(rotary.cos, stat));
    sin_ = LastStrideOne(raw::To(rotary.sin, stat));
  }

  /// Heads for attention. With norms, whose backward needs the projection, only queries and keys
  /// are written anew.
  std::pair<PackedHeads, HeadNorms> Forward(const Tensor& packed, const RotaryHeads& rotary) const {
    const std::int64_t rotated = num_heads_ + num_kv_heads_;
    const auto [q, k, v] = Unpack(packed, num_heads_, num_kv_heads_);
    const std::int64_t copied = has_norms_ ? 0 : num_kv_heads_;
    const Tensor memory =
        Tensor::Empty({packed.size(0), packed.size(1), (rotated + copied) * head_dim_},
                      packed.dtype(), packed.device());
    PackedHeads heads = {TakeHeads(memory, 0, num_heads_, head_dim_),
                         TakeHeads(memory, num_heads_, num_kv_heads_, head_dim_), v};
    if (has_norms_) {
      const Tensor query_norm = detail::NormParameter(rotary.query_norm, packed.dtype());
      const Tensor key_norm = detail::NormParameter(rotary.key_norm, packed.dtype());
      Tensor query_rstd = Statistic(q);
      Tensor key_rstd = Statistic(k);
      Call<op::NormRotary>(heads.q, query_rstd, q, query_norm, cos_, sin_, rotary.norm_eps);
      Call<op::NormRotary>(heads.k, key_rstd, k, key_norm, cos_, sin_, rotary.norm_eps);
      return {heads,
              {SavedTensor(packed), SavedTensor(query_norm), SavedTensor(key_norm),
               SavedTensor(query_rstd), SavedTensor(key_rstd)}};
    }
    Tensor both = TakeHeads(memory, 0, rotated, head_dim_);
    Call<op::Rotary>(both, TakeHeads(packed, 0, rotated, head_dim_), cos_, sin_,
                     /*interleaved=*/false, /*inverse=*/false);
    heads.v = TakeHeads(memory, rotated, num_kv_heads_, head_dim_);
    Call<op::Copy>(heads.v, v);
    return {heads, {}};
  }

  /// Turns the gradient of the heads into that of the projection, in place, and gives those of the
  /// norms that are asked for.
  std::pair<Tensor, Tensor> Backward(const Tensor& grad_qkv, const HeadNorms& norms,
                                     bool needs_query_norm, bool needs_key_norm) const {
    if (!has_norms_) {
      Tensor both = TakeHeads(grad_qkv, 0, num_heads_ + num_kv_heads_, head_dim_);
      Call<op::Rotary>(both, both, cos_, sin_, /*interleaved=*/false,
                       /*inverse=*/true);
      return {};
    }
    const auto [q, k, v] = Unpack(norms.packed.Unpack(), num_heads_, num_kv_heads_);
    auto grads = Unpack(grad_qkv, num_heads_, num_kv_heads_);
    const auto backward = [&](Tensor& grad, const Tensor& x, const Tensor& weight,
                              const Tensor& rstd, bool needs_weight) {
      Tensor grad_weight = needs_weight ? Tensor::EmptyLike(weight) : Tensor();
      Call<op::NormRotaryBackward>(grad, grad_weight, grad, x, weight, rstd, cos_, sin_);
      return grad_weight;
    };
    return {backward(grads.q, q, norms.query_norm.Unpack(), norms.query_rstd.Unpack(),
                     needs_query_norm),
            backward(grads.k, k, norms.key_norm.Unpack(), norms.key_rstd.Unpack(), needs_key_norm)};
  }

 private:
  static Tensor Statistic(const Tensor& heads) {
    return Tensor::Empty({heads.size(0), heads.size(1), heads.size(2)}, detail::StatDataType(heads),
                         heads.device());
  }

  std::int64_t num_heads_, num_kv_heads_, head_dim_;
  bool has_norms_ = false;
  Tensor cos_, sin_;
};

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
  CheckPacked(qkv, num_attention_heads, num_key_value_heads);
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

Tensor PackedRotaryAttention(const Tensor& qkv, std::int64_t num_attention_heads,
                             std::int64_t num_key_value_heads, const RotaryHeads& rotary,
                             AttentionParams params, const Tensor& cumulative_lengths) {
  CheckPacked(qkv, num_attention_heads, num_key_value_heads);
  const Tensor packed = LastStrideOne(raw::To(qkv, detail::MatmulDataType("attention", qkv, qkv)));
  const RotaryProjection projection(packed, num_attention_heads, num_key_value_heads, rotary);
  const auto [heads, norms] = projection.Forward(packed, rotary);
  const Tensor lengths = CheckedLengths(cumulative_lengths, heads.q, heads.k);
  params = Complete(params, heads.q.size(3), qkv.device());
  const auto [out, lse] = RunAttention(heads.q, heads.k, heads.v, lengths, params);
  Tensor result = MergeHeads(out);
  if (ShouldRecord({&qkv, &rotary.query_norm, &rotary.key_norm})) {
    Record(
        "PackedRotaryAttention", {&result}, {&qkv, &rotary.query_norm, &rotary.key_norm},
        [projection, q = SavedTensor(heads.q), k = SavedTensor(heads.k), v = SavedTensor(heads.v),
         out = SavedTensor(out), lse = SavedTensor(lse), lengths = SavedTensor(lengths), norms,
         params, num_attention_heads, num_key_value_heads, shape = qkv.shape(), dtype = qkv.dtype(),
         query_dtype = rotary.query_norm.defined() ? rotary.query_norm.dtype() : qkv.dtype(),
         key_dtype = rotary.key_norm.defined() ? rotary.key_norm.dtype()
                                               : qkv.dtype()](BackwardContext& context) {
          const Tensor query = q.Unpack();
          const Tensor grad_qkv = Tensor::Empty(shape, query.dtype(), query.device());
          auto grads = Unpack(grad_qkv, num_attention_heads, num_key_value_heads);
          const Tensor grad_out = LastStrideOne(context.TakeGradOutput());
          Call<op::AttentionBackward>(
              grads.q, grads.k, grads.v, SplitHeads(grad_out, num_attention_heads), out.Unpack(),
              lse.Unpack(), query, k.Unpack(), v.Unpack(), lengths.Unpack(), params);
          const auto [grad_query_norm, grad_key_norm] =
              projection.Backward(grad_qkv, norms, context.NeedsGrad(1), context.NeedsGrad(2));
          if (context.NeedsGrad(0)) context.SetGrad(0, raw::To(grad_qkv, dtype));
          if (context.NeedsGrad(1)) context.SetGrad(1, raw::To(grad_query_norm, query_dtype));
          if (context.NeedsGrad(2)) context.SetGrad(2, raw::To(grad_key_norm, key_dtype));
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
