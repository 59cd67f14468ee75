#include "infini_train/nn/layers.h"

#include <fmt/format.h>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/matmul_precision.h"

namespace infini_train::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, bool bias,
               TensorOptions options) {
  weight_ = RegisterParameter(
      "weight", Tensor::Empty({out_features, in_features}, options.dtype, options.device));
  if (bias) {
    bias_ = RegisterParameter("bias", Tensor::Empty({out_features}, options.dtype, options.device));
  }
}

std::shared_ptr<Fp8LinearState> Linear::active_fp8_state() const {
  return GetMatmulPrecision() == MatmulPrecision::kFp8 ? fp8_state_ : nullptr;
}

Tensor Linear::ApplyToQuantized(const Fp8Activation& x) const {
  return Fp8Linear(x, weight_, bias_, fp8_state_);
}

void Linear::set_lora(std::shared_ptr<LoraAdapters> lora) {
  lora_ = RegisterModule("lora", std::move(lora));
}

Tensor Linear::Forward(const Tensor& x, const ForwardContext&) {
  const auto state = active_fp8_state();
  const Tensor y =
      state ? Fp8Linear(x, weight_, bias_, state) : infini_train::Linear(x, weight_, bias_);
  return lora_ ? lora_->AddTo(y, x) : y;
}

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim,
                     TensorOptions options) {
  weight_ = RegisterParameter(
      "weight", Tensor::Empty({num_embeddings, embedding_dim}, options.dtype, options.device));
}

Tensor Embedding::Forward(const Tensor& ids, const ForwardContext&) {
  return infini_train::Embedding(weight_, ids);
}

std::pair<Tensor, Tensor> Norm::AddThenNormalize(const Tensor& x, const Tensor& branch,
                                                 const ForwardContext& context) {
  if (!HasForwardHooks()) return FusedAddThenNormalize(x, branch);
  const Tensor sum = branch.defined() ? x + branch : x;
  return {sum, (*this)(sum, context)};
}

LayerNorm::LayerNorm(std::int64_t hidden_size, double eps, bool bias, TensorOptions options)
    : eps_(eps) {
  weight_ =
      RegisterParameter("weight", Tensor::Empty({hidden_size}, options.dtype, options.device));
  if (bias) {
    bias_ = RegisterParameter("bias", Tensor::Empty({hidden_size}, options.dtype, options.device));
  }
}

Tensor LayerNorm::Forward(const Tensor& x, const ForwardContext&) {
  return infini_train::LayerNorm(x, weight_, bias_, eps_);
}

std::pair<Tensor, Tensor> LayerNorm::FusedAddThenNormalize(const Tensor& x, const Tensor& branch) {
  return AddLayerNorm(x, branch, weight_, bias_, eps_);
}

std::pair<Tensor, Fp8Activation> LayerNorm::AddThenQuantize(const Tensor& x, const Tensor& branch,
                                                            const Linear& consumer) const {
  return Fp8AddLayerNorm(x, branch, weight_, bias_, eps_, *consumer.active_fp8_state(),
                         consumer.weight().requires_grad());
}

RmsNorm::RmsNorm(std::int64_t hidden_size, double eps, TensorOptions options) : eps_(eps) {
  weight_ =
      RegisterParameter("weight", Tensor::Empty({hidden_size}, options.dtype, options.device));
}

Tensor RmsNorm::Forward(const Tensor& x, const ForwardContext&) {
  return infini_train::RmsNorm(x, weight_, eps_);
}

std::pair<Tensor, Tensor> RmsNorm::FusedAddThenNormalize(const Tensor& x, const Tensor& branch) {
  return AddRmsNorm(x, branch, weight_, eps_);
}

std::pair<Tensor, Fp8Activation> RmsNorm::AddThenQuantize(const Tensor& x, const Tensor& branch,
                                                          const Linear& consumer) const {
  return Fp8AddRmsNorm(x, branch, weight_, eps_, *consumer.active_fp8_state(),
                       consumer.weight().requires_grad());
}

Dropout::Dropout(double p) {
  set_p(p);
}

void Dropout::set_p(double p) {
  if (!(p >= 0.0 && p < 1.0)) throw Error(fmt::format("dropout: expected 0 <= p < 1, got {}", p));
  p_ = p;
}

Tensor Dropout::Forward(const Tensor& x, const ForwardContext&) {
  return infini_train::Dropout(x, p_, training());
}

}  // namespace infini_train::nn
