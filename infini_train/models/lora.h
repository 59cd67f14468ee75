#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/models/model.h"

/// Fine-tuning by low-rank adapters, which are stored as PEFT stores them
/// (https://github.com/huggingface/peft).
namespace infini_train::models {

/// Which linear layers of the blocks have adapters. Layers have the names of their parameters here
/// (h.0.attn.c_attn) and those of Hugging Face's modules (model.layers.0.self_attn.q_proj); where
/// Hugging Face has several modules for one layer here, each has an adapter of its own. c_fc2 is
/// another name of a gate.
struct LoraTargets {
  /// Ends of dotted names: c_proj is that of attention and of the MLP, attn.c_proj one of them.
  std::vector<std::string> names;
  /// A regular expression for whole names instead, or "all-linear" for all linear layers.
  std::string pattern;

  bool operator==(const LoraTargets&) const = default;
};

/// "all-linear", a comma-separated list of names, or, where there is a character that names do not
/// have, a pattern. Throws Error naming the flag lora_target_modules when a name is empty.
INFINI_TRAIN_API LoraTargets ParseLoraTargets(std::string_view text);

/// What adapters are like, by PEFT's rules: they add alpha / rank * B A to a weight, or
/// alpha / √rank * B A where rank_stabilized (Kalajdzievski 2023).
struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 16.0;
  double dropout = 0.0;
  bool rank_stabilized = false;
  /// Empty: c_attn and c_proj of GPT-2, all linear layers of the other families.
  LoraTargets targets = {};

  bool operator==(const LoraOptions&) const = default;
};

struct LoraSite;

/// The adapters of a model (nn/lora.h).
class INFINI_TRAIN_API Lora {
 public:
  /// Gives `model` new adapters, A from `seed`, B zero, and freezes everything else: it requires no
  /// gradient. Throws Error naming the flag lora_* for a bad number, for a name that no layer has
  /// (listing those that there are) and for one of a module that cannot have adapters.
  Lora(const Model& model, const LoraOptions& options, std::uint64_t seed);

  /// Gives `model` the adapters of a folder of PEFT's (adapter_config.json,
  /// adapter_model.safetensors), and freezes everything else. Throws Error naming the file and the
  /// field whose value is not supported, or every tensor that is missing, unexpected or misshapen,
  /// before the model is changed.
  static Lora Load(const Model& model, const std::filesystem::path& folder);

  ~Lora();
  Lora(Lora&&) noexcept;
  Lora& operator=(Lora&&) noexcept;

  const LoraOptions& options() const { return options_; }
  /// Whether these are the adapters of `targets`. Throws Error as the constructor does.
  bool Adapts(const LoraTargets& targets) const;
  std::int64_t num_parameters() const;

  /// Writes the two files, so that PEFT opens the folder. `base`: where the model comes from. Each
  /// file is replaced atomically; the folder is created.
  void Save(const std::filesystem::path& folder, const std::string& base) const;

  /// Adds the adapters to the weights of their layers: in float32, rounded once to the weights'
  /// type. `keep_base` keeps a copy of these weights, which Unmerge puts back bit for bit.
  void Merge(bool keep_base);
  /// Throws Error unless the adapters are merged with the base kept.
  void Unmerge();

 private:
  Lora();
  /// Freezes the model and builds the adapters of the sites.
  void Build(const Model& model, std::vector<LoraSite> sites, std::uint64_t seed);

  Model model_;
  LoraOptions options_;
  std::vector<LoraSite> sites_;
};

/// Whether a folder has adapters in it.
INFINI_TRAIN_API bool IsLoraFolder(const std::filesystem::path& folder);
/// What a folder's adapter_config.json says. Throws Error as Lora::Load does.
INFINI_TRAIN_API LoraOptions ReadLoraOptions(const std::filesystem::path& folder);
/// Where the model of a folder's adapters comes from, as Save was told; empty where it does not
/// say.
INFINI_TRAIN_API std::string LoraBase(const std::filesystem::path& folder);

}  // namespace infini_train::models
