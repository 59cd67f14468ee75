#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/generator.h"
#include "infini_train/nn/feed_forward.h"
#include "infini_train/nn/layers.h"
#include "infini_train/nn/module.h"
#include "infini_train/nn/rotary_embedding.h"
#include "infini_train/nn/transformer_config.h"
#include "infini_train/ops/params.h"

/// The one decoder-only transformer; a model family is a TransformerConfig. Parameter names are
/// GPT-2's: wte, wpe, h.{i}.ln_1, h.{i}.attn.c_attn, h.{i}.attn.c_proj, h.{i}.ln_2, h.{i}.mlp.c_fc,
/// h.{i}.mlp.c_proj, ln_f, lm_head. c_attn packs the rows [query | key | value], a gated c_fc
/// [gate | up]. With experts h.{i}.mlp is a MixtureOfExperts.
namespace infini_train::nn {

/// x [B, T, C] to [B, T, C].
class INFINI_TRAIN_API CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(const TransformerConfig& config, std::int64_t layer_index,
                      TensorOptions options);

  const Linear* input_projection() const { return c_attn_.get(); }
  const Linear& output_projection() const { return *c_proj_; }
  /// A call with x in FP8, where no hooks watch and the input projection takes it.
  Tensor ApplyToQuantized(const Fp8Activation& x, const ForwardContext& context);
  void set_attention_dropout(double p) { config_.attention_dropout = p; }

  /// Whether the op CachedAttention does with heads of `dtype` what the layer does with them for a
  /// new position of each sequence.
  bool CanUseCachedAttention(DataType dtype) const;
  /// Whether Decode computes with weights of `dtype` what the layer computes with a cache: nobody
  /// watches or changes its parts.
  bool CanDecode(DataType dtype) const;
  /// x + the layer of norm(x) for a new position of each sequence, x [B, C], by the ops of
  /// generation; cos and sin [P, D/2] for all positions, or undefined.
  Tensor Decode(const Tensor& x, const RmsNorm& norm, KeyValueCache& cache, const Tensor& cos,
                const Tensor& sin) const;

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;

 private:
  AttentionParams Params() const;
  /// What follows the input projection.
  Tensor Attend(const Tensor& qkv, const ForwardContext& context);
  /// Applies norms, positions and the cache to the heads of qkv, one by one: [B, T, H D].
  Tensor AttendByHeads(const Tensor& qkv, const ForwardContext& context) const;
  /// The heads of a new position of each sequence, qkv [B, (H + 2 K) D], by one op: [B, H D].
  Tensor AttendToCache(const Tensor& qkv, KeyValueCache& cache, const Tensor& cos,
                       const Tensor& sin) const;

  TransformerConfig config_;
  std::int64_t layer_index_;
  double scale_;
  std::shared_ptr<Linear> c_attn_;
  std::shared_ptr<Linear> c_proj_;
  std::shared_ptr<RmsNorm> q_norm_;
  std::shared_ptr<RmsNorm> k_norm_;
  std::shared_ptr<Dropout> resid_dropout_;
};

/// x [.., C] to [.., C] by an inner width of intermediate_size.
class INFINI_TRAIN_API Mlp : public FeedForward {
 public:
  Mlp(const TransformerConfig& config, TensorOptions options);

  const Tensor& output_weight() const override { return c_proj_->weight(); }
  const Linear* input_projection() const override { return c_fc_.get(); }
  Tensor ApplyToQuantized(const Fp8Activation& x, const ForwardContext& context) override;

  /// As CausalSelfAttention's.
  bool CanDecode(DataType dtype) const;
  Tensor Decode(const Tensor& x, const RmsNorm& norm) const;

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;

 private:
  /// Whether the two layers and a GELU between them are one function in FP8.
  bool IsFp8GeluMlp() const;
  template <typename Input>
  Tensor MultiplyInFp8(const Input& x) const;
  /// What follows the input projection.
  Tensor Project(Tensor hidden, const ForwardContext& context);

  Activation activation_;
  std::shared_ptr<Linear> c_fc_;
  std::shared_ptr<Linear> c_proj_;
  std::shared_ptr<Dropout> dropout_;
};

/// x + branch, whose sum is put off until a norm can make it on its way.
struct ResidualStream {
  Tensor x;
  Tensor branch;  ///< undefined: nothing to add

  Tensor Sum() const;
};

class INFINI_TRAIN_API TransformerBlock : public Module {
 public:
  TransformerBlock(const TransformerConfig& config, std::int64_t layer_index,
                   TensorOptions options);

  const CausalSelfAttention& attention() const { return *attn_; }
  const FeedForward& mlp() const { return *mlp_; }

  /// Forward of the stream's sum, with sums and norms in one pass.
  ResidualStream Continue(const ResidualStream& stream, const ForwardContext& context);

  /// As CausalSelfAttention's, for the block.
  bool CanDecode(DataType dtype) const;
  Tensor Decode(const Tensor& x, KeyValueCache& cache, const Tensor& cos, const Tensor& sin) const;

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;

 private:
  std::shared_ptr<Norm> ln_1_;
  std::shared_ptr<CausalSelfAttention> attn_;
  std::shared_ptr<Norm> ln_2_;
  std::shared_ptr<FeedForward> mlp_;
};

/// Which layers drop their activations in forward and compute them again in backward.
struct ActivationCheckpointing {
  enum class Method : std::uint8_t {
    kNone,
    kUniform,    ///< every group of `num_layers` layers is one checkpoint
    kBlock,      ///< the first `num_layers` layers, each on its own
    kSelective,  ///< in every layer, what a pass over memory makes again (SelectiveRecompute)
  };
  Method method = Method::kNone;
  std::int64_t num_layers = 1;
};

/// Token ids [B, T] to logits [B, T, V].
class INFINI_TRAIN_API Transformer : public Module {
 public:
  /// Allocates; call InitializeParameters or load a checkpoint. Throws Error on a bad
  /// configuration.
  explicit Transformer(const TransformerConfig& config, TensorOptions options = {});

  const TransformerConfig& config() const { return config_; }
  /// The projection from hidden states to logits [V, C].
  const Tensor& head_weight() const;

  /// Weights from N(0, initializer_range), projections back into the residual stream from
  /// N(0, initializer_range / √(2 layers)), biases 0, norm weights 1 (Radford et al. 2019). For
  /// equal generator states equal on every device up to the rounding of its functions.
  void InitializeParameters(Generator& generator) const;

  /// Hidden states [B, T, C] after the final norm. Throws Error when positions exceed
  /// max_position_embeddings, an id is not below vocab_size, or packed samples of the context do
  /// not fit the ids.
  Tensor HiddenStates(const Tensor& ids, const ForwardContext& context = {});

  /// scale * sum of cross-entropies of the next-token targets [B, T], times `factor` where that is
  /// defined (one element, on the device: for what captured work shall not fix); targets of
  /// kDefaultIgnoreIndex do not count. Logits are never held as a whole.
  ///
  /// In training mode, where output_router_logits is set, plus router_aux_loss_coef *
  /// context.auxiliary_weight * the load-balancing loss of this pass (RouterStatistics), which
  /// counts ignored targets too, but not what the context's token mask leaves out.
  Tensor Loss(const Tensor& ids, const Tensor& targets, double scale,
              const ForwardContext& context = {}, const Tensor& factor = {});

  /// Whether ids are a token [B, 1] of each sequence of this context's cache and are computed with
  /// no work of the host that depends on their positions, which may differ: without gradients and
  /// dropout, where nobody watches the norms of heads.
  bool CanStep(const Tensor& ids, const ForwardContext& context) const;
  /// Whether the blocks then are the five ops of generation each: in models of rotary positions,
  /// RMSNorm and SwiGLU whose layers nobody watches.
  bool CanDecode(const Tensor& ids, const ForwardContext& context) const;

  /// Sets every dropout probability (embedding, attention, residual) to p. Throws Error unless
  /// 0 <= p < 1.
  void SetDropout(double p);

  /// Throws Error unless num_layers is positive.
  void set_activation_checkpointing(ActivationCheckpointing value);

  /// Ends a step of training in FP8: the scales of what the linear layers of the blocks quantise
  /// follow what this step's passes recorded. Call it after the last backward pass of a step.
  /// Without a forward pass under MatmulPrecision::kFp8 it does nothing.
  void UpdateFp8Scales();
  /// What UpdateFp8Scales goes by (Fp8Scales::Magnitudes); empty where there are no scales.
  std::vector<Tensor> Fp8Magnitudes() const;

  /// The scales of FP8, which are no part of the state dict; empty where there are none. For each
  /// linear layer of the blocks, and the head ("lm_head") where it has some, the tensors of
  /// Fp8ScalesState by name ("h.0.attn.c_attn.scale"), with T = 3 for its input, its weight and its
  /// output's gradient; on the CPU.
  NamedTensors Fp8State();
  /// Goes on where `state` was taken, between steps; does nothing unless the model computes in
  /// FP8 now. Without it a model measures its tensors in its first step. Throws Error that lists
  /// every missing, unexpected and unfit tensor, before anything is written.
  void LoadFp8State(const NamedTensors& state);

 protected:
  Tensor Forward(const Tensor& ids, const ForwardContext& context) override;

 private:
  /// Whether Loss adds the load-balancing loss.
  bool BalancesExperts() const;
  /// `context` with what depends on its cache, which has room for ids then. Throws Error where ids,
  /// cache and positions do not fit.
  ForwardContext PreparePass(const Tensor& ids, const ForwardContext& context) const;
  /// How many positions the sequences of a pass then have. Throws Error when they are too many.
  std::int64_t CheckPositions(const Tensor& ids, const ForwardContext& context) const;
  /// Cosines and sines of the positions that a cache has room for, as CachedAttention takes them.
  std::pair<Tensor, Tensor> AnglesOfCache(const KeyValueCache& cache) const;
  /// Runs the blocks on ids [B, 1] and counts the position: the stream [B, C].
  Tensor Decode(const Tensor& ids, const ForwardContext& context);
  /// Embeddings of the learned positions of ids, [T, C], or [B, 1, C] by the lengths of the cache.
  Tensor LearnedPositions(const Tensor& ids, const ForwardContext& context);
  /// What passes convert to autocast's type; nothing where memory is dearer than time.
  std::vector<Tensor> ParametersToCast();
  Tensor LossOfHidden(const Tensor& hidden, const Tensor& targets, double scale);
  ResidualStream RunBlocks(Tensor x, const ForwardContext& context);
  /// Gives the linear layers of the blocks and the head scales, before the first pass that asks for
  /// FP8.
  void PrepareFp8();

  TransformerConfig config_;
  ActivationCheckpointing checkpointing_;
  std::shared_ptr<Embedding> wte_;
  std::shared_ptr<Embedding> wpe_;
  std::unique_ptr<RotaryTable> rotary_;
  std::shared_ptr<Dropout> drop_;
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
  std::shared_ptr<Norm> ln_f_;
  std::shared_ptr<Linear> lm_head_;
  std::shared_ptr<Fp8Scales> fp8_scales_;
  std::shared_ptr<Fp8LinearState> fp8_head_;
  std::vector<std::string> fp8_linears_;  ///< their names
};

}  // namespace infini_train::nn
