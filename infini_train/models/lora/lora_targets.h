#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/models/lora.h"
#include "infini_train/nn/layers.h"

namespace infini_train::models {

/// What can have an adapter: output features of a linear layer that Hugging Face has as a module.
struct LoraSite {
  nn::Linear* linear = nullptr;
  std::string layer;         ///< the layer's name here: "h.0.attn.c_attn"
  std::string module;        ///< Hugging Face's: "model.layers.0.self_attn.q_proj"
  std::string module_short;  ///< the same without the prefix that files may leave out
  std::string alias;         ///< a third name of the layer, or empty
  std::int64_t row = 0;      ///< first feature
  std::int64_t features = 0;
};

/// A module that cannot have adapters.
struct OtherModule {
  std::string name;   ///< here, or Hugging Face's
  std::string alias;  ///< the latter with, or without, the prefix that files may leave out
};

/// The linear layers of a model's blocks, in order, and its other modules with matrices.
struct LoraSites {
  std::vector<LoraSite> adaptable;
  std::vector<OtherModule> others;
};
LoraSites FindLoraSites(const Model& model);

enum class UnknownNames : std::uint8_t { kRefuse, kIgnore };

/// The sites that `targets` mean. Throws Error, beginning with `where`, for none, for names of
/// other modules and, where they are refused, for names that match nothing.
std::vector<LoraSite> SelectLoraSites(const LoraSites& sites, const LoraTargets& targets,
                                      UnknownNames unknown, const std::string& where);

/// Targets in Hugging Face's names that mean `chosen` and nothing else of a model.
LoraTargets DescribeLoraSites(const LoraSites& sites, const std::vector<LoraSite>& chosen);

}  // namespace infini_train::models
