#include "infini_train/nn/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/autograd/parameter_casts.h"
#include "infini_train/autograd/selective_recompute.h"
#include "infini_train/core/device/launch_overlap.h"
#include "infini_train/core/error.h"
#include "infini_train/nn/key_value_cache.h"
#include "infini_train/nn/mixture_of_experts.h"
#include "infini_train/nn/router_statistics.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/matmul_precision.h"

namespace infini_train::nn {
namespace {

std::shared_ptr<Norm> MakeNorm(const TransformerConfig& config, TensorOptions options) {
  if (config.norm == NormType::kLayerNorm) {
    return std::make_shared<LayerNorm>(config.hidden_size, config.norm_eps, true, options);
  }
  return std::make_shared<RmsNorm>(config.hidden_size, config.norm_eps, options);
}

/// The stream behind a norm and an attention or MLP.
template <typename Layer>
ResidualStream Through(Norm& norm, Layer& layer, const ResidualStream& stream,
                       const ForwardContext& context) {
  const Linear* projection = layer.input_projection();
  const bool watched = norm.HasForwardHooks() || layer.HasForwardHooks();
  if (projection != nullptr && !watched && projection->TakesQuantized()) {
    const auto [x, normalized] = norm.AddThenQuantize(stream.x, stream.branch, *projection);
    return {x, layer.ApplyToQuantized(normalized, context)};
  }
  const auto [x, normalized] = norm.AddThenNormalize(stream.x, stream.branch, context);
  return {x, layer(normalized, context)};
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(const TransformerConfig& config, std::int64_t layer_index,
                                         TensorOptions options)
    : config_(config),
      layer_index_(layer_index),
      scale_(config.scale_attention ? 1.0 / std::sqrt(static_cast<double>(config.head_dim)) : 1.0) {
  if (config.scale_attention_by_inverse_layer_index) {
    scale_ /= static_cast<double>(layer_index + 1);
  }
  const std::int64_t heads = config.num_attention_heads + 2 * config.num_key_value_heads;
  c_attn_ =
      RegisterModule("c_attn", std::make_shared<Linear>(config.hidden_size, heads * config.head_dim,
                                                        config.attention_bias, options));
  c_proj_ = RegisterModule(
      "c_proj",
      std::make_shared<Linear>(config.num_attention_heads * config.head_dim, config.hidden_size,
                               config.attention_output_bias, options));
  if (config.query_key_norm) {
    q_norm_ = RegisterModule("q_norm",
                             std::make_shared<RmsNorm>(config.head_dim, config.norm_eps, options));
    k_norm_ = RegisterModule("k_norm",
                             std::make_shared<RmsNorm>(config.head_dim, config.norm_eps, options));
  }
  resid_dropout_ =
      RegisterModule("resid_dropout", std::make_shared<Dropout>(config.residual_dropout));
}

AttentionParams CausalSelfAttention::Params() const {
  return {.scale = scale_,
          .causal = true,
          .sliding_window = layer_index_ < config_.max_window_layers ? 0 : config_.sliding_window,
          .dropout_p = training() ? config_.attention_dropout : 0.0,
          .dropout_state = {}};
}

Tensor CausalSelfAttention::AttendByHeads(const Tensor& qkv, const ForwardContext& context) const {
  const std::int64_t num_heads = config_.num_attention_heads;
  const std::int64_t num_kv_heads = config_.num_key_value_heads;
  const Tensor heads = Transpose(
      Reshape(qkv, {qkv.size(0), qkv.size(1), num_heads + 2 * num_kv_heads, config_.head_dim}), 1,
      2);
  Tensor q = Slice(heads, 1, 0, num_heads);
  Tensor k = Slice(heads, 1, num_heads, num_heads + num_kv_heads);
  Tensor v = Slice(heads, 1, num_heads + num_kv_heads);
  if (q_norm_) {
    q = (*q_norm_)(q);
    k = (*k_norm_)(k);
  }
  if (context.rotary_cos.defined()) {
    q = Rotary(q, context.rotary_cos, context.rotary_sin);
    k = Rotary(k, context.rotary_cos, context.rotary_sin);
  }
  if (!context.prompts.empty()) {
    context.cache->Fill(layer_index_, k, v, context.prompts);
  } else if (context.cache != nullptr) {
    std::tie(k, v) = context.cache->Append(layer_index_, k, v);
  }
  const Tensor out =
      ScaledDotProductAttention(q, k, v, Params(), context.samples.cumulative_lengths);
  return Reshape(Transpose(out, 1, 2), {qkv.size(0), qkv.size(1), num_heads * config_.head_dim});
}

Tensor CausalSelfAttention::Forward(const Tensor& x, const ForwardContext& context) {
  return Attend((*c_attn_)(x, context), context);
}

Tensor CausalSelfAttention::ApplyToQuantized(const Fp8Activation& x,
                                             const ForwardContext& context) {
  return Attend(c_attn_->ApplyToQuantized(x), context);
}

Tensor CausalSelfAttention::Attend(const Tensor& qkv, const ForwardContext& context) {
  Tensor out;
  const bool rotates = context.rotary_cos.defined();
  const bool watched = q_norm_ && (q_norm_->HasForwardHooks() || k_norm_->HasForwardHooks());
  if (context.by_cached_attention) {
    out = Unsqueeze(AttendToCache(Contiguous(Squeeze(qkv, 1)), *context.cache, context.rotary_cos,
                                  context.rotary_sin),
                    1);
  } else if (context.cache != nullptr || watched || (q_norm_ && !rotates)) {
    out = AttendByHeads(qkv, context);
  } else if (rotates) {
    RotaryHeads rotary{.cos = context.rotary_cos, .sin = context.rotary_sin};
    if (q_norm_) {
      rotary.query_norm = q_norm_->weight();
      rotary.key_norm = k_norm_->weight();
      rotary.norm_eps = config_.norm_eps;
    }
    out = PackedRotaryAttention(qkv, config_.num_attention_heads, config_.num_key_value_heads,
                                rotary, Params(), context.samples.cumulative_lengths);
  } else {
    out = PackedAttention(qkv, config_.num_attention_heads, config_.num_key_value_heads, Params(),
                          context.samples.cumulative_lengths);
  }
  return (*resid_dropout_)((*c_proj_)(out, context), context);
}

Mlp::Mlp(const TransformerConfig& config, TensorOptions options) : activation_(config.activation) {
  const std::int64_t width =
      (activation_ == Activation::kSwiGlu ? 2 : 1) * config.intermediate_size;
  c_fc_ = RegisterModule(
      "c_fc", std::make_shared<Linear>(config.hidden_size, width, config.mlp_bias, options));
  c_proj_ = RegisterModule("c_proj",
                           std::make_shared<Linear>(config.intermediate_size, config.hidden_size,
                                                    config.mlp_bias, options));
  dropout_ = RegisterModule("dropout", std::make_shared<Dropout>(config.residual_dropout));
}

bool Mlp::IsFp8GeluMlp() const {
  const bool is_gelu = activation_ == Activation::kGelu || activation_ == Activation::kGeluTanh;
  return is_gelu && c_fc_->TakesQuantized() && c_proj_->TakesQuantized();
}

template <typename Input>
Tensor Mlp::MultiplyInFp8(const Input& x) const {
  return Fp8GeluMlp(x, c_fc_->weight(), c_fc_->bias(), c_proj_->weight(), c_proj_->bias(),
                    activation_ == Activation::kGeluTanh, c_fc_->active_fp8_state(),
                    c_proj_->active_fp8_state());
}

Tensor Mlp::Forward(const Tensor& x, const ForwardContext& context) {
  if (IsFp8GeluMlp()) return (*dropout_)(MultiplyInFp8(x), context);
  const bool can_fuse = c_fc_->CanFuse() && c_proj_->CanFuse();
  const bool is_fp8 = c_fc_->active_fp8_state() || c_proj_->active_fp8_state();
  if (activation_ == Activation::kGeluTanh && can_fuse && !is_fp8) {
    return (*dropout_)(
        GeluMlp(x, c_fc_->weight(), c_fc_->bias(), c_proj_->weight(), c_proj_->bias()), context);
  }
  if (activation_ == Activation::kSwiGlu && can_fuse && !is_fp8) {
    return (*dropout_)(
        SwiGluMlp(x, c_fc_->weight(), c_fc_->bias(), c_proj_->weight(), c_proj_->bias()), context);
  }
  return Project((*c_fc_)(x, context), context);
}

Tensor Mlp::ApplyToQuantized(const Fp8Activation& x, const ForwardContext& context) {
  return IsFp8GeluMlp() ? (*dropout_)(MultiplyInFp8(x), context)
                        : Project(c_fc_->ApplyToQuantized(x), context);
}

Tensor Mlp::Project(Tensor hidden, const ForwardContext& context) {
  switch (activation_) {
    case Activation::kGelu:
      hidden = Gelu(hidden, GeluApproximation::kNone);
      break;
    case Activation::kGeluTanh:
      hidden = Gelu(hidden, GeluApproximation::kTanh);
      break;
    case Activation::kRelu:
      hidden = Clamp(hidden, 0.0, std::numeric_limits<double>::infinity());
      break;
    case Activation::kSwiGlu:
      hidden = SwiGlu(hidden);
      break;
  }
  return (*dropout_)((*c_proj_)(hidden, context), context);
}

Tensor ResidualStream::Sum() const {
  return branch.defined() ? x + branch : x;
}

TransformerBlock::TransformerBlock(const TransformerConfig& config, std::int64_t layer_index,
                                   TensorOptions options) {
  ln_1_ = RegisterModule("ln_1", MakeNorm(config, options));
  attn_ =
      RegisterModule("attn", std::make_shared<CausalSelfAttention>(config, layer_index, options));
  ln_2_ = RegisterModule("ln_2", MakeNorm(config, options));
  if (config.num_local_experts > 0) {
    mlp_ = RegisterModule("mlp", std::make_shared<MixtureOfExperts>(config, options));
  } else {
    mlp_ = RegisterModule("mlp", std::make_shared<Mlp>(config, options));
  }
}

ResidualStream TransformerBlock::Continue(const ResidualStream& stream,
                                          const ForwardContext& context) {
  if (HasForwardHooks()) return {(*this)(stream.Sum(), context), {}};
  return Through(*ln_2_, *mlp_, Through(*ln_1_, *attn_, stream, context), context);
}

Tensor TransformerBlock::Forward(const Tensor& x, const ForwardContext& context) {
  const Tensor middle = x + (*attn_)((*ln_1_)(x, context), context);
  return middle + (*mlp_)((*ln_2_)(middle, context), context);
}

Transformer::Transformer(const TransformerConfig& config, TensorOptions options) : config_(config) {
  config.Validate();
  wte_ = RegisterModule(
      "wte", std::make_shared<Embedding>(config.vocab_size, config.hidden_size, options));
  if (config.position_embedding == PositionEmbedding::kLearned) {
    wpe_ = RegisterModule("wpe", std::make_shared<Embedding>(config.max_position_embeddings,
                                                             config.hidden_size, options));
  } else {
    rotary_ = std::make_unique<RotaryTable>(config, options.device);
  }
  drop_ = RegisterModule("drop", std::make_shared<Dropout>(config.embedding_dropout));
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    blocks_.push_back(RegisterModule(fmt::format("h.{}", i),
                                     std::make_shared<TransformerBlock>(config, i, options)));
  }
  ln_f_ = RegisterModule("ln_f", MakeNorm(config, options));
  if (!config.tie_word_embeddings) {
    lm_head_ = RegisterModule(
        "lm_head", std::make_shared<Linear>(config.hidden_size, config.vocab_size, false, options));
  }
}

const Tensor& Transformer::head_weight() const {
  return lm_head_ ? lm_head_->weight() : wte_->weight();
}

void Transformer::InitializeParameters(Generator& generator) const {
  NoGrad no_grad;
  const double residual_stddev =
      config_.initializer_range / std::sqrt(2.0 * static_cast<double>(config_.num_hidden_layers));
  std::vector<Tensor> residual_weights;
  for (const auto& block : blocks_) {
    residual_weights.push_back(block->attention().output_projection().weight());
    residual_weights.push_back(block->mlp().output_weight());
  }
  for (auto& [name, parameter] : NamedParameters()) {
    if (parameter.rank() == 1) {
      FillInPlace(parameter, name.ends_with(".bias") ? 0 : 1);
      continue;
    }
    const bool residual =
        std::any_of(residual_weights.begin(), residual_weights.end(),
                    [&](const Tensor& weight) { return weight.IsSameAs(parameter); });
    Call<op::RandomNormal>(parameter, 0.0, residual ? residual_stddev : config_.initializer_range,
                           generator.Next());
  }
}

void Transformer::SetDropout(double p) {
  for (const auto& [name, module] : NamedModules()) {
    if (auto* dropout = dynamic_cast<Dropout*>(module)) dropout->set_p(p);
    if (auto* attention = dynamic_cast<CausalSelfAttention*>(module)) {
      attention->set_attention_dropout(p);
    }
  }
  config_.embedding_dropout = config_.attention_dropout = config_.residual_dropout = p;
}

void Transformer::set_activation_checkpointing(ActivationCheckpointing value) {
  if (value.num_layers <= 0) {
    throw Error(
        fmt::format("activation checkpointing: expected a positive number of layers, got {}",
                    value.num_layers));
  }
  checkpointing_ = value;
}

ResidualStream Transformer::RunBlocks(Tensor x, const ForwardContext& context) {
  const auto run = [this, context](Tensor value, std::size_t begin, std::size_t end,
                                   RouterStatistics* routers) {
    ForwardContext pass = context;
    pass.routers = routers;
    ResidualStream stream{std::move(value), {}};
    for (std::size_t i = begin; i < end; ++i)
      stream = blocks_[i]->Continue(stream, pass);
    return stream;
  };
  using Method = ActivationCheckpointing::Method;
  const SelectiveRecompute selective(checkpointing_.method == Method::kSelective);
  if (checkpointing_.method == Method::kNone || checkpointing_.method == Method::kSelective ||
      !autograd::GradEnabled()) {
    return run(std::move(x), 0, blocks_.size(), context.routers);
  }
  const bool uniform = checkpointing_.method == Method::kUniform;
  const std::size_t group = uniform ? static_cast<std::size_t>(checkpointing_.num_layers) : 1;
  const std::size_t checkpointed =
      uniform ? blocks_.size()
              : std::min(blocks_.size(), static_cast<std::size_t>(checkpointing_.num_layers));
  for (std::size_t begin = 0; begin < checkpointed; begin += group) {
    const std::size_t end = std::min(begin + group, checkpointed);
    // By value: it runs again in backward, when this pass is over and its statistics may be gone.
    const bool has_routers = context.routers != nullptr;
    const auto function = [run, begin, end, has_routers](const std::vector<Tensor>& inputs) {
      RouterStatistics routers;
      std::vector<Tensor> outputs = {
          run(inputs[0], begin, end, has_routers ? &routers : nullptr).Sum()};
      const std::vector<Tensor> noted = routers.Tensors();
      outputs.insert(outputs.end(), noted.begin(), noted.end());
      return outputs;
    };
    const std::vector<Tensor> outputs = Checkpoint(function, {x});
    x = outputs[0];
    if (has_routers) context.routers->AddTensors(std::span(outputs).subspan(1));
  }
  return run(std::move(x), checkpointed, blocks_.size(), context.routers);
}

bool Transformer::BalancesExperts() const {
  return training() && config_.num_local_experts > 0 && config_.output_router_logits &&
         config_.router_aux_loss_coef > 0.0;
}

std::int64_t Transformer::CheckPositions(const Tensor& ids, const ForwardContext& context) const {
  if (ids.rank() != 2) {
    throw Error(
        fmt::format("expected token ids [batch, sequence], got {}", ids.shape().ToString()));
  }
  const PackedSamples& samples = context.samples;
  if (samples.defined() && (ids.size(0) != 1 || ids.size(1) != samples.positions.numel())) {
    throw Error(fmt::format("packed samples: expected token ids [1, {}], got {}",
                            samples.positions.numel(), ids.shape().ToString()));
  }
  const std::int64_t positions =
      samples.defined() ? samples.max_length : context.position_offset + ids.size(1);
  if (positions > config_.max_position_embeddings) {
    throw Error(fmt::format("expected at most {} positions (max_position_embeddings), got {}",
                            config_.max_position_embeddings, positions));
  }
  return positions;
}

Tensor Transformer::LearnedPositions(const Tensor& ids, const ForwardContext& context) {
  if (context.by_cached_attention) {
    const Tensor& lengths = context.cache->device_lengths(ids.device());
    return Unsqueeze((*wpe_)(To(lengths, DataType::kInt64), context), 1);
  }
  if (context.samples.defined()) return (*wpe_)(context.samples.positions, context);
  return Slice(wpe_->weight(), 0, context.position_offset, context.position_offset + ids.size(1));
}

Tensor Transformer::HiddenStates(const Tensor& ids, const ForwardContext& context) {
  ForwardContext pass = PreparePass(ids, context);
  PrepareFp8();
  if (CanDecode(ids, pass)) {
    const Tensor x = Decode(ids, pass);
    pass.cache->Advance(1);
    return Unsqueeze((*ln_f_)(x, pass), 1);
  }
  const std::int64_t tokens = ids.size(1);
  pass.by_cached_attention = CanStep(ids, pass);
  if (pass.by_cached_attention) {
    std::tie(pass.rotary_cos, pass.rotary_sin) = AnglesOfCache(*pass.cache);
  } else if (rotary_) {
    const PackedSamples& samples = pass.samples;
    // Later batches of packed samples may have a longer one.
    std::tie(pass.rotary_cos, pass.rotary_sin) = samples.defined()
                                                     ? rotary_->Rows(samples.positions, tokens)
                                                     : rotary_->Rows(pass.position_offset, tokens);
  }
  if (pass.routers != nullptr) pass.token_mask = pass.routers->CountTokens(ids, pass);
  Tensor x = (*wte_)(ids, pass);
  if (wpe_) x = x + To(LearnedPositions(ids, pass), x.dtype());
  const ResidualStream stream = RunBlocks((*drop_)(x, pass), pass);
  if (!pass.prompts.empty()) {
    pass.cache->Advance(pass.prompts);
  } else if (pass.cache != nullptr) {
    pass.cache->Advance(tokens);
  }
  return ln_f_->AddThenNormalize(stream.x, stream.branch, pass).second;
}

std::vector<Tensor> Transformer::ParametersToCast() {
  std::vector<Tensor> parameters;
  // Without recording, or with checkpoints, a copy would outlive its use.
  if (!autograd::GradEnabled() || checkpointing_.method != ActivationCheckpointing::Method::kNone) {
    return parameters;
  }
  PrepareFp8();
  // Of a table that is no head only few rows are read.
  if (!lm_head_) parameters.push_back(wte_->weight());
  for (const auto& [name, module] : NamedModules()) {
    if (const auto* experts = dynamic_cast<const MixtureOfExperts*>(module); experts != nullptr) {
      parameters.insert(parameters.end(), {experts->input_weight(), experts->output_weight()});
    }
    const auto* linear = dynamic_cast<const Linear*>(module);
    if (linear == nullptr) continue;
    if (!linear->active_fp8_state()) parameters.push_back(linear->weight());
    if (linear->bias().defined()) parameters.push_back(linear->bias());
  }
  return parameters;
}

Tensor Transformer::Forward(const Tensor& ids, const ForwardContext& context) {
  if (CanDecode(ids, context)) {
    PreparePass(ids, context);
    const auto& norm = dynamic_cast<const RmsNorm&>(*ln_f_);
    const Tensor x = Decode(ids, context);
    Tensor logits = Tensor::Empty({x.size(0), head_weight().size(0)}, x.dtype(), x.device());
    {
      const LaunchOverlap overlap;
      Call<op::NormGemv>(logits, x, norm.weight(), head_weight(), Tensor(), Tensor(), norm.eps(),
                         /*gated=*/false);
    }
    context.cache->Advance(1);
    return Unsqueeze(logits, 1);
  }
  const ParameterCasts casts(ParametersToCast());
  return infini_train::Linear(HiddenStates(ids, context), head_weight());
}

Tensor Transformer::LossOfHidden(const Tensor& hidden, const Tensor& targets, double scale) {
  if (fp8_head_ && GetMatmulPrecision() == MatmulPrecision::kFp8) {
    return Fp8LinearCrossEntropy(hidden, head_weight(), targets, scale, *fp8_head_,
                                 kDefaultIgnoreIndex);
  }
  return LinearCrossEntropy(hidden, head_weight(), targets, scale);
}

Tensor Transformer::Loss(const Tensor& ids, const Tensor& targets, double scale,
                         const ForwardContext& context, const Tensor& factor) {
  const ParameterCasts casts(ParametersToCast());
  ForwardContext pass = context;
  RouterStatistics routers;
  const bool balances = BalancesExperts();
  if (balances && pass.routers == nullptr) pass.routers = &routers;
  Tensor loss = LossOfHidden(HiddenStates(ids, pass), targets, scale);
  if (factor.defined()) loss = loss * factor;
  if (!balances) return loss;
  return loss + pass.routers->LoadBalancingLoss() *
                    Scalar(config_.router_aux_loss_coef * pass.auxiliary_weight);
}

}  // namespace infini_train::nn
