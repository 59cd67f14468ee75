#include "infini_train/nn/router_statistics.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"

namespace infini_train::nn {
namespace {

constexpr std::size_t kTensorsOfLayer = 3;

}  // namespace

void RouterStatistics::Add(Layer layer) {
  layers_.push_back(std::move(layer));
  load_balancing_loss_ = {};
}

Tensor RouterStatistics::CountTokens(const Tensor& ids, const ForwardContext& context) {
  const NoGrad no_grad;
  Tensor mask = context.token_mask;
  if (const Tensor& lengths = context.samples.cumulative_lengths;
      !mask.defined() && lengths.defined()) {
    const Tensor places = Arange(0, ids.size(1), 1, DataType::kInt64, ids.device());
    mask = Lt(places, To(Slice(lengths, 0, -1), DataType::kInt64));
  }
  if (!mask.defined()) {
    num_tokens_ = Full({}, static_cast<double>(ids.numel()), DataType::kFloat32, ids.device());
    return {};
  }
  if (mask.numel() != ids.numel()) {
    throw Error(fmt::format("token mask: expected {}, got {}", ids.shape().ToString(),
                            mask.shape().ToString()));
  }
  mask = Reshape(To(mask, DataType::kFloat32), {-1});
  num_tokens_ = Sum(mask);
  return mask;
}

std::vector<Tensor> RouterStatistics::Tensors() const {
  std::vector<Tensor> tensors;
  for (const Layer& layer : layers_)
    tensors.insert(tensors.end(), {layer.probability_sum, layer.load, layer.entropy_sum});
  return tensors;
}

void RouterStatistics::AddTensors(std::span<const Tensor> tensors) {
  for (std::size_t i = 0; i + kTensorsOfLayer <= tensors.size(); i += kTensorsOfLayer)
    Add({tensors[i], tensors[i + 1].Detach(), tensors[i + 2].Detach()});
}

void RouterStatistics::CheckLayers() const {
  if (layers_.empty() || !num_tokens_.defined()) {
    throw Error("router statistics: expected those of a model with experts, got none");
  }
}

Tensor RouterStatistics::LoadBalancingLoss() {
  CheckLayers();
  if (load_balancing_loss_.defined()) return load_balancing_loss_;
  std::vector<Tensor> probability_sums, loads;
  for (const Layer& layer : layers_) {
    probability_sums.push_back(layer.probability_sum);
    loads.push_back(layer.load);
  }
  const Tensor probability_sum = Sum(Stack(probability_sums, 0), {0});
  Tensor share;
  {
    const NoGrad no_grad;
    // Where no token counts all sums are 0, and so is the loss.
    const Tensor counted =
        Clamp(num_tokens_, Scalar(1), Scalar(std::numeric_limits<double>::infinity()));
    const Tensor tokens = counted * Scalar(static_cast<double>(layers_.size()));
    const Tensor load = Sum(Stack(loads, 0), {0});
    share = load * Scalar(static_cast<double>(load.numel())) / Square(tokens);
  }
  return load_balancing_loss_ = Sum(probability_sum * share);
}

Tensor RouterStatistics::Summary() const {
  CheckLayers();
  const NoGrad no_grad;
  std::vector<Tensor> loads, entropy_sums;
  for (const Layer& layer : layers_) {
    loads.push_back(layer.load);
    entropy_sums.push_back(Reshape(layer.entropy_sum, {1}));
  }
  const auto count = static_cast<std::int64_t>(layers_.size());
  const Tensor tokens = Expand(num_tokens_, {count, 1});
  return Concat({Stack(loads, 0), Stack(entropy_sums, 0), tokens}, 1);
}

}  // namespace infini_train::nn
