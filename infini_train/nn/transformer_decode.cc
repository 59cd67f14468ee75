// The transformer's ways for generation: prompts into a cache, and a position of each sequence of
// it at a time, by five ops a block where the model is made for them.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/launch_overlap.h"
#include "infini_train/core/error.h"
#include "infini_train/nn/key_value_cache.h"
#include "infini_train/nn/transformer.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::nn {
namespace {

/// Whether the layer is nothing but its weight, in `dtype`, and bias.
bool IsPlain(const Linear& linear, DataType dtype) {
  return linear.CanFuse() && !linear.active_fp8_state() && linear.weight().dtype() == dtype;
}

/// Null unless it is one whose weight the ops take beside data of `dtype`.
const RmsNorm* PlainRmsNorm(const Norm& norm, DataType dtype) {
  const auto* rms = dynamic_cast<const RmsNorm*>(&norm);
  if (rms == nullptr || rms->HasForwardHooks()) return nullptr;
  const DataType found = rms->weight().dtype();
  const bool fits = found == dtype || (found == DataType::kFloat32 && dtype != DataType::kFloat64);
  return fits ? rms : nullptr;
}

/// residual + linear(norm(x)), through SwiGlu where gated; norm and residual are optional.
Tensor Gemv(const Tensor& x, const RmsNorm* norm, const Linear& linear, const Tensor& residual,
            bool gated = false) {
  const std::int64_t outputs = linear.weight().size(0) / (gated ? 2 : 1);
  Tensor out = Tensor::Empty({x.size(0), outputs}, x.dtype(), x.device());
  Call<op::NormGemv>(out, x, norm != nullptr ? norm->weight() : Tensor(), linear.weight(),
                     linear.bias(), residual, norm != nullptr ? norm->eps() : 0.0, gated);
  return out;
}

/// What a model whose weights are like this one computes in.
DataType ComputeTypeOf(const Tensor& weight) {
  return autocast::ComputeDataType().value_or(weight.dtype());
}

/// Where each prompt lies in ids [1, T]. Undefined for one, which is a sequence like any other.
PackedSamples SamplesOfPrompts(const Tensor& ids, std::span<const CachedPrompt> prompts) {
  std::vector<std::int64_t> lengths;
  for (const CachedPrompt& prompt : prompts)
    lengths.push_back(prompt.tokens);
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (!(ids.shape() == Dims{1, tokens})) {
    throw Error(
        fmt::format("prompts: expected token ids [1, {}], got {}", tokens, ids.shape().ToString()));
  }
  if (lengths.size() == 1) return {};
  return PackSamples(lengths, tokens, ids.device());
}

}  // namespace

bool CausalSelfAttention::CanUseCachedAttention(DataType dtype) const {
  if (training() && config_.attention_dropout > 0) return false;
  return !q_norm_ ||
         (PlainRmsNorm(*q_norm_, dtype) != nullptr && PlainRmsNorm(*k_norm_, dtype) != nullptr &&
          config_.position_embedding == PositionEmbedding::kRotary);
}

Tensor CausalSelfAttention::AttendToCache(const Tensor& qkv, KeyValueCache& cache,
                                          const Tensor& cos, const Tensor& sin) const {
  auto& [keys, values] =
      cache.Buffers(layer_index_, {qkv.size(0), config_.num_key_value_heads, 1, config_.head_dim},
                    qkv.dtype(), qkv.device());
  Tensor out = Tensor::Empty({qkv.size(0), config_.num_attention_heads * config_.head_dim},
                             qkv.dtype(), qkv.device());
  Call<op::CachedAttention>(out, keys, values, qkv, cache.device_lengths(qkv.device()), cos, sin,
                            q_norm_ ? q_norm_->weight() : Tensor(),
                            k_norm_ ? k_norm_->weight() : Tensor(), config_.norm_eps, Params());
  return out;
}

bool CausalSelfAttention::CanDecode(DataType dtype) const {
  const bool watched = HasForwardHooks() || resid_dropout_->HasForwardHooks() ||
                       (training() && config_.residual_dropout > 0);
  return !watched && CanUseCachedAttention(dtype) && IsPlain(*c_attn_, dtype) &&
         IsPlain(*c_proj_, dtype);
}

Tensor CausalSelfAttention::Decode(const Tensor& x, const RmsNorm& norm, KeyValueCache& cache,
                                   const Tensor& cos, const Tensor& sin) const {
  const Tensor heads = AttendToCache(Gemv(x, &norm, *c_attn_, {}), cache, cos, sin);
  return Gemv(heads, nullptr, *c_proj_, x);
}

bool Mlp::CanDecode(DataType dtype) const {
  return activation_ == Activation::kSwiGlu && !HasForwardHooks() && !dropout_->HasForwardHooks() &&
         IsPlain(*c_fc_, dtype) && IsPlain(*c_proj_, dtype);
}

Tensor Mlp::Decode(const Tensor& x, const RmsNorm& norm) const {
  return Gemv(Gemv(x, &norm, *c_fc_, {}, /*gated=*/true), nullptr, *c_proj_, x);
}

bool TransformerBlock::CanDecode(DataType dtype) const {
  const auto* mlp = dynamic_cast<const Mlp*>(mlp_.get());
  return !HasForwardHooks() && PlainRmsNorm(*ln_1_, dtype) != nullptr &&
         PlainRmsNorm(*ln_2_, dtype) != nullptr && mlp != nullptr && mlp->CanDecode(dtype) &&
         attn_->CanDecode(dtype);
}

Tensor TransformerBlock::Decode(const Tensor& x, KeyValueCache& cache, const Tensor& cos,
                                const Tensor& sin) const {
  const Tensor middle = attn_->Decode(x, dynamic_cast<const RmsNorm&>(*ln_1_), cache, cos, sin);
  return dynamic_cast<const Mlp&>(*mlp_).Decode(middle, dynamic_cast<const RmsNorm&>(*ln_2_));
}

bool Transformer::CanStep(const Tensor& ids, const ForwardContext& context) const {
  if (context.cache == nullptr || !context.prompts.empty() || ids.rank() != 2 || ids.size(1) != 1 ||
      context.samples.defined() || autograd::GradEnabled()) {
    return false;
  }
  const DataType dtype = ComputeTypeOf(wte_->weight());
  return std::all_of(blocks_.begin(), blocks_.end(), [dtype](const auto& block) {
    return block->attention().CanUseCachedAttention(dtype);
  });
}

bool Transformer::CanDecode(const Tensor& ids, const ForwardContext& context) const {
  if (!CanStep(ids, context)) return false;
  const DataType dtype = wte_->weight().dtype();
  // Dropout of the residual stream is the same in all layers.
  const bool drops = training() && (config_.embedding_dropout > 0 || config_.residual_dropout > 0);
  return ComputeTypeOf(wte_->weight()) == dtype && !drops && rotary_ && !wte_->HasForwardHooks() &&
         !drop_->HasForwardHooks() && PlainRmsNorm(*ln_f_, dtype) != nullptr &&
         (!lm_head_ || IsPlain(*lm_head_, dtype)) &&
         std::all_of(blocks_.begin(), blocks_.end(),
                     [dtype](const auto& block) { return block->CanDecode(dtype); });
}

Tensor Transformer::Decode(const Tensor& ids, const ForwardContext& context) {
  KeyValueCache& cache = *context.cache;
  const auto [cos, sin] = AnglesOfCache(cache);
  // What a new cache begins with is not written in the scope below.
  cache.Buffers(0, {ids.size(0), config_.num_key_value_heads, 1, config_.head_dim},
                wte_->weight().dtype(), ids.device());
  Tensor x = Squeeze((*wte_)(ids, context), 1);
  // The embedding in front of it waits for all before it, and nothing in it writes a parameter, a
  // length or an earlier position.
  const LaunchOverlap overlap;
  for (const auto& block : blocks_)
    x = block->Decode(x, cache, cos, sin);
  return x;
}

std::pair<Tensor, Tensor> Transformer::AnglesOfCache(const KeyValueCache& cache) const {
  if (!rotary_) return {};
  const auto [cos, sin] = rotary_->Rows(0, std::min(cache.room(), config_.max_position_embeddings));
  const DataType dtype = ComputeTypeOf(wte_->weight());
  const DataType stat = PromoteTypes(dtype, DataType::kFloat32);
  return {To(cos, stat), To(sin, stat)};
}

ForwardContext Transformer::PreparePass(const Tensor& ids, const ForwardContext& context) const {
  ForwardContext pass = context;
  KeyValueCache* const cache = pass.cache;
  if (pass.samples.defined() &&
      (cache != nullptr || !pass.prompts.empty() || pass.position_offset != 0)) {
    throw Error("packed samples: expected neither a key/value cache nor a position offset");
  }
  if (!pass.prompts.empty()) {
    if (cache == nullptr) throw Error("prompts: expected a key/value cache that keeps them");
    cache->CheckPrompts(pass.prompts);
    pass.position_offset = 0;
    pass.samples = SamplesOfPrompts(ids, pass.prompts);
  } else if (cache != nullptr) {
    pass.position_offset = cache->length();
  }
  const std::int64_t positions = CheckPositions(ids, pass);
  if (cache == nullptr) return pass;
  if (pass.prompts.empty() && ids.size(0) != cache->batch_size()) {
    throw Error(fmt::format("key/value cache: expected token ids of {} sequences, got {}",
                            cache->batch_size(), ids.shape().ToString()));
  }
  cache->MakeRoom(positions);
  return pass;
}

}  // namespace infini_train::nn
