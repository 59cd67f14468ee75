#include "infini_train/autograd/selective_recompute.h"

#include <utility>

#include "infini_train/core/autograd_meta.h"

namespace infini_train {
namespace {

thread_local bool selective_recompute = false;

}  // namespace

SelectiveRecompute::SelectiveRecompute(bool enabled)
    : previous_(std::exchange(selective_recompute, enabled)) {}

SelectiveRecompute::~SelectiveRecompute() {
  selective_recompute = previous_;
}

bool SelectiveRecompute::Enabled() {
  return selective_recompute;
}

namespace autograd {

void SetRecompute(const Tensor& tensor, std::function<Tensor()> recompute) {
  AutogradMeta& meta = tensor.EnsureAutogradMeta();
  meta.recompute = std::move(recompute);
  meta.recompute_version = tensor.version();
}

std::function<Tensor()> RecomputeOf(const Tensor& tensor) {
  const AutogradMeta* meta = tensor.autograd_meta();
  if (!SelectiveRecompute::Enabled() || meta == nullptr || !meta->recompute ||
      meta->recompute_version != tensor.version()) {
    return {};
  }
  return meta->recompute;
}

void SetRecomputeFrom(const Tensor& x, const Tensor& result,
                      std::function<Tensor(const Tensor&)> function) {
  if (std::function<Tensor()> again = RecomputeOf(x)) {
    SetRecompute(result, [again = std::move(again), function = std::move(function)] {
      return function(again());
    });
  }
}

}  // namespace autograd
}  // namespace infini_train
