#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/generator.h"
#include "infini_train/nn/module.h"

namespace infini_train::nn {

/// Low-rank adapters of one linear layer (Hu et al., "LoRA: low-rank adaptation of large language
/// models", 2021), each of a range of its output features: x Wᵀ + bias becomes
/// x Wᵀ + bias + scale * (dropout(x) Aᵀ) Bᵀ with A [rank, in] and B [features, rank] in float32.
/// The adapters of a layer share the dropout mask of their input. Parameters are "<adapter>.A" and
/// "<adapter>.B".
class INFINI_TRAIN_API LoraAdapters : public Module {
 public:
  struct Options {
    std::int64_t rank = 8;
    double scale = 1.0;
    double dropout = 0.0;  ///< of the input, in training mode
  };

  struct Adapter {
    std::string name;
    std::int64_t row = 0;  ///< its first output feature
    Tensor a;
    Tensor b;
  };

  /// Throws Error unless the rank is positive and 0 <= dropout < 1.
  LoraAdapters(std::int64_t in_features, const Options& options, Device device);

  /// Adapts the features [row, row + features). A is uniform in ±1/√in (Kaiming's initialization
  /// with a = √5), B zero: the layer computes what it did. Throws Error for a range that overlaps
  /// another adapter's.
  void Add(const std::string& name, std::int64_t row, std::int64_t features, Generator& generator);

  const Options& options() const { return options_; }
  const std::vector<Adapter>& adapters() const { return adapters_; }

  /// y, the layer's output for x, with the adapters' part added; y is overwritten. y alone while
  /// the adapters are merged.
  Tensor AddTo(const Tensor& y, const Tensor& x);

  /// Adds scale * B A to the layer's weight, in float32 and rounded once; from then on AddTo adds
  /// nothing. `keep_base`: keeps a copy of the weight, for Unmerge.
  void Merge(const Tensor& weight, bool keep_base);
  /// Gives the weight the very bits that it had. Throws Error unless it was merged with its base
  /// kept.
  void Unmerge(const Tensor& weight);
  bool merged() const { return merged_; }

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;

 private:
  std::int64_t in_features_;
  Options options_;
  Device device_;
  std::vector<Adapter> adapters_;
  bool merged_ = false;
  Tensor base_;  ///< the weight before it was merged
};

}  // namespace infini_train::nn
