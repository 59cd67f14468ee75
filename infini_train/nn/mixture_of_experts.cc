#include "infini_train/nn/mixture_of_experts.h"

#include <limits>
#include <optional>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/nn/router_statistics.h"

namespace infini_train::nn {
namespace {

/// What the router gave for the tokens of a layer.
struct Routing {
  Tensor probabilities;  ///< [N, E]
  Tensor experts;        ///< int64 [N, k]
  Tensor counts;         ///< int64 [E], rows of `experts` for each expert
};

/// How often each expert was chosen by tokens that `mask` [N] counts.
Tensor Load(const Routing& routing, const Tensor& mask) {
  const DataType dtype = routing.probabilities.dtype();
  if (!mask.defined()) return To(routing.counts, dtype);
  const Tensor choices = Expand(Unsqueeze(mask, 1), routing.experts.shape());
  const Tensor none = Zeros(routing.counts.shape(), dtype, mask.device());
  return ScatterAdd(none, 0, Flatten(routing.experts), Flatten(choices));
}

RouterStatistics::Layer Statistics(const Routing& routing, Tensor mask) {
  const Tensor& probabilities = routing.probabilities;
  if (mask.defined()) mask = To(mask, probabilities.dtype());
  const auto of_counted = [&](const Tensor& rows) {
    return mask.defined() ? rows * Unsqueeze(mask, 1) : rows;
  };
  RouterStatistics::Layer layer;
  layer.probability_sum = Sum(of_counted(probabilities), {0});
  const NoGrad no_grad;
  layer.load = Load(routing, mask);
  // 0 ln 0 is 0.
  const Tensor logarithm = Log(Clamp(probabilities, std::numeric_limits<float>::min(), 1.0));
  layer.entropy_sum = -Sum(of_counted(probabilities * logarithm));
  return layer;
}

}  // namespace

Router::Router(std::int64_t hidden_size, std::int64_t num_experts, TensorOptions options) {
  weight_ = RegisterParameter(
      "weight", Tensor::Empty({num_experts, hidden_size}, options.dtype, options.device));
}

Tensor Router::Forward(const Tensor& x, const ForwardContext&) {
  const Autocast off(std::nullopt);
  const DataType dtype = PromoteTypes(DataType::kFloat32, PromoteTypes(x.dtype(), weight_.dtype()));
  return infini_train::Linear(To(x, dtype), To(weight_, dtype));
}

MixtureOfExperts::MixtureOfExperts(const TransformerConfig& config, TensorOptions options)
    : num_experts_(config.num_local_experts),
      num_experts_per_tok_(config.num_experts_per_tok),
      jitter_noise_(config.router_jitter_noise) {
  router_ =
      RegisterModule("router", std::make_shared<Router>(config.hidden_size, num_experts_, options));
  const auto weight = [&](std::int64_t out, std::int64_t in) {
    return Tensor::Empty({num_experts_, out, in}, options.dtype, options.device);
  };
  c_fc_ = RegisterParameter("experts.c_fc.weight",
                            weight(2 * config.intermediate_size, config.hidden_size));
  c_proj_ = RegisterParameter("experts.c_proj.weight",
                              weight(config.hidden_size, config.intermediate_size));
  dropout_ = RegisterModule("dropout", std::make_shared<Dropout>(config.residual_dropout));
}

Tensor MixtureOfExperts::Forward(const Tensor& x, const ForwardContext& context) {
  Tensor tokens = Reshape(x, {-1, x.size(-1)});
  if (training() && jitter_noise_ > 0.0) {
    tokens = tokens * Uniform(tokens.shape(), 1.0 - jitter_noise_, 1.0 + jitter_noise_,
                              tokens.dtype(), tokens.device());
  }
  const Tensor probabilities = Softmax((*router_)(tokens, context), -1);
  const auto [chosen, experts] = TopK(probabilities, num_experts_per_tok_);
  const Tensor weights = chosen / Sum(chosen, {-1}, true);
  const auto [rows, counts] = SortByExpert(experts, num_experts_);
  if (context.routers != nullptr) {
    context.routers->Add(Statistics({probabilities, experts, counts}, context.token_mask));
  }
  const Tensor hidden = SwiGlu(GroupedLinear(ExpertPermute(tokens, rows), c_fc_, counts));
  const Tensor out = ExpertUnpermute(GroupedLinear(hidden, c_proj_, counts), rows, weights);
  return (*dropout_)(Reshape(out, x.shape()), context);
}

}  // namespace infini_train::nn
