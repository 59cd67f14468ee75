#include "infini_train/nn/token_graph.h"

#include <fmt/format.h>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::nn {
namespace {

/// Steps before the capture: kernels are loaded, and libraries have chosen their algorithms.
constexpr std::int64_t kStepsBefore = 2;

}  // namespace

TokenGraph::TokenGraph(Transformer& model, KeyValueCache& cache, const Tensor& tokens)
    : model_(model), cache_(cache), tokens_(Clone(tokens)) {}

void TokenGraph::Run() {
  logits_ = Squeeze(model_(tokens_, {.cache = &cache_}), 1);
  Tensor next = tokens_;
  Call<op::ArgMax>(next, logits_, 1);
}

void TokenGraph::Step() {
  const NoGrad no_grad;
  if (cache_.length() >= cache_.capacity()) {
    throw Error(fmt::format("key/value cache: expected at most {} positions, got one more",
                            cache_.capacity()));
  }
  if (graph_) {
    graph_->Launch();
    cache_.CountReplayed(1);
    return;
  }
  if (steps_++ == kStepsBefore && TryCapture()) {
    graph_->Launch();
  } else {
    Run();
  }
}

bool TokenGraph::TryCapture() {
  const Device device = tokens_.device();
  if (!DeviceGraph::IsSupported(device) || !model_.CanDecode(tokens_, {.cache = &cache_}))
    return false;
  const std::int64_t length = cache_.length();
  try {
    graph_.emplace(device, [this] { Run(); });
    return true;
  } catch (const Error&) {
    // A device that lacks one of the kernels goes on without: its CPU cannot be captured.
    cache_.CountReplayed(length - cache_.length());
    return false;
  }
}

}  // namespace infini_train::nn
