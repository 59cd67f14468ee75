#include "infini_train/nn/lora.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/autograd/low_rank.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/matmul_precision.h"

namespace infini_train::nn {
namespace {

/// Products in float32 as they are, whatever the policy, for a scope.
class ExactProducts {
 public:
  ExactProducts() { SetMatmulPrecision(MatmulPrecision::kFloat32); }
  ~ExactProducts() { SetMatmulPrecision(previous_); }
  ExactProducts(const ExactProducts&) = delete;
  ExactProducts& operator=(const ExactProducts&) = delete;

 private:
  MatmulPrecision previous_ = GetMatmulPrecision();
};

}  // namespace

LoraAdapters::LoraAdapters(std::int64_t in_features, const Options& options, Device device)
    : in_features_(in_features), options_(options), device_(device) {
  if (options.rank <= 0) {
    throw Error(fmt::format("LoRA: expected a positive rank, got {}", options.rank));
  }
  if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
    throw Error(fmt::format("LoRA dropout: expected 0 <= p < 1, got {}", options.dropout));
  }
}

void LoraAdapters::Add(const std::string& name, std::int64_t row, std::int64_t features,
                       Generator& generator) {
  for (const Adapter& other : adapters_) {
    if (row < other.row + other.b.size(0) && other.row < row + features) {
      throw Error(fmt::format("LoRA: {} and {} adapt the same features", name, other.name));
    }
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features_));
  Tensor a = Uniform({options_.rank, in_features_}, -bound, bound, DataType::kFloat32, device_,
                     &generator);
  Tensor b = Zeros({features, options_.rank}, DataType::kFloat32, device_);
  adapters_.push_back({name, row, RegisterParameter(name + ".A", std::move(a)),
                       RegisterParameter(name + ".B", std::move(b))});
}

Tensor LoraAdapters::AddTo(const Tensor& y, const Tensor& x) {
  if (merged_) return y;
  std::vector<LowRankTerm> terms;
  for (const Adapter& adapter : adapters_)
    terms.push_back({adapter.a, adapter.b, adapter.row});
  return AddLowRank(y, infini_train::Dropout(x, options_.dropout, training()), terms,
                    options_.scale);
}

void LoraAdapters::Merge(const Tensor& weight, bool keep_base) {
  if (merged_) throw Error("LoRA: the adapters are merged already");
  const NoGrad no_grad;
  const Autocast no_autocast(std::nullopt);
  const ExactProducts exact;
  if (keep_base) base_ = Clone(weight);
  for (const Adapter& adapter : adapters_) {
    const Tensor rows = Slice(weight, 0, adapter.row, adapter.row + adapter.b.size(0));
    const Tensor difference = Matmul(adapter.b, adapter.a) * Scalar(options_.scale);
    CopyInPlace(rows, To(rows, DataType::kFloat32) + difference);
  }
  merged_ = true;
}

void LoraAdapters::Unmerge(const Tensor& weight) {
  if (!base_.defined())
    throw Error("LoRA: the adapters are not merged, or not with their base kept");
  const NoGrad no_grad;
  CopyInPlace(weight, base_);
  base_ = {};
  merged_ = false;
}

Tensor LoraAdapters::Forward(const Tensor&, const ForwardContext&) {
  throw Error("LoRA: adapters add to the output of their layer (AddTo)");
}

}  // namespace infini_train::nn
