#include "infini_train/nn/token_graph.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/matmul_precision.h"

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
  cache_.MakeRoom(cache_.length() + 1);
  if (cache_.room() != room_) {
    graph_.reset();
    room_ = cache_.room();
    steps_ = 0;
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
  const std::vector<std::pair<std::string, Module*>> modules = model_.NamedModules();
  const bool watched = std::any_of(modules.begin(), modules.end(), [](const auto& module) {
    return module.second->HasForwardHooks();
  });
  // In FP8 every pass measures what it rounds, and the host has a part in it.
  if (!DeviceGraph::IsSupported(device) || watched ||
      GetMatmulPrecision() == MatmulPrecision::kFp8 ||
      !model_.CanStep(tokens_, {.cache = &cache_})) {
    return false;
  }
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
