#include "infini_train/models/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "infini_train/checkpoint/llmc_checkpoint.h"
#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/core/json/untrusted_json.h"
#include "infini_train/models/families/config_reader.h"
#include "infini_train/models/families/model_family.h"
#include "infini_train/models/families/weights.h"
#include "infini_train/nn/lora.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

nlohmann::json ReadJson(const fs::path& path) {
  return ParseJson(ReadFile(path.string()), path.string());
}

/// The family whose llm.c format the file has.
const ModelFamily& FamilyOfFile(const fs::path& path) {
  if (!PathExists(path)) throw Error(fmt::format("{}: no such file or folder", path.string()));
  for (const ModelFamily* family : Families()) {
    if (family->llmc_magic() != 0 && checkpoint::IsLlmcFile(path, family->llmc_magic())) {
      return *family;
    }
  }
  const MappedFile file(path.string());  // says so where it cannot be opened
  throw Error(fmt::format("{}: is neither a model folder nor an llm.c checkpoint of a known family",
                          path.string()));
}

ModelConfig LoadFolderConfig(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  if (!PathExists(path)) throw Error(fmt::format("{}: holds no config.json", folder.string()));
  const nlohmann::json json = ReadJson(path);
  const ConfigReader reader(json, path.string());
  const std::string type = reader.String("model_type");
  std::vector<std::string_view> known;
  for (const ModelFamily* family : Families()) {
    known.push_back(family->name());
    if (family->name() != type) continue;
    ModelConfig config = family->ParseConfig(json, path.string());
    if (const fs::path generation = folder / "generation_config.json"; PathExists(generation)) {
      const nlohmann::json generation_json = ReadJson(generation);
      const auto eos = ConfigReader(generation_json, generation.string()).TokenIds("eos_token_id");
      if (!eos.empty()) config.eos_token_ids = eos;
    }
    ValidateConfig(config.transformer, path.string());
    return config;
  }
  reader.Field("model_type").FailExpected(fmt::format("one of {}", fmt::join(known, ", ")));
}

/// Refuses a configuration far larger than the weights before memory is taken for its model.
void CheckSize(const nn::TransformerConfig& config, const checkpoint::SafetensorsFolder& files) {
  // Up to here a model is built, and the error says which tensors are missing.
  constexpr std::int64_t kParametersAtLeast = std::int64_t{1} << 24;
  constexpr std::int64_t kLayersAtLeast = 256;
  std::int64_t elements = 0;
  std::int64_t tensors = 0;
  for (const std::string& name : files.Names()) {
    elements += Numel(files.shape(name));
    ++tensors;
  }
  if (config.NumParameters() <= std::max(2 * elements, kParametersAtLeast) &&
      config.num_hidden_layers <= std::max(tensors, kLayersAtLeast)) {
    return;
  }
  throw Error(fmt::format(
      "{}: expected about {} parameters in {} layers as config.json says, found {} in {} tensors",
      files.path(), config.NumParameters(), config.num_hidden_layers, elements, tensors));
}

/// Throws Error where the parameters alone are more than the memory of their device: a system that
/// gives memory before it is used would end the process when it is.
std::shared_ptr<nn::Transformer> MakeModule(const nn::TransformerConfig& config,
                                            const nn::TensorOptions& options) {
  config.Validate();
  const Device device = options.device;
  const std::size_t memory =
      GetDeviceGuardImpl(device.type()).Properties(device.index()).total_memory;
  const double needed =
      static_cast<double>(config.NumParameters()) * static_cast<double>(SizeOf(options.dtype));
  if (memory == 0 || needed <= static_cast<double>(memory))
    return std::make_shared<nn::Transformer>(config, options);
  throw Error(
      fmt::format("expected a model that fits the {:.1f} GiB of memory of {}, found one of {} "
                  "parameters, which take {:.1f} GiB in {}",
                  static_cast<double>(memory) / 0x1p30, device.ToString(), config.NumParameters(),
                  needed / 0x1p30, ToString(options.dtype)));
}

/// Throws Error where weights alone would not be the model.
void RequireNoAdapters(const Model& model) {
  for (const auto& [name, module] : model.module->NamedModules()) {
    const auto* lora = dynamic_cast<const nn::LoraAdapters*>(module);
    if (lora == nullptr || lora->merged()) continue;
    throw Error("expected a model without adapters, or with merged ones; adapters are saved apart");
  }
}

std::string_view Describe(nn::NormType norm) {
  return norm == nn::NormType::kLayerNorm ? "LayerNorm" : "RMSNorm";
}

std::string_view Describe(nn::PositionEmbedding embedding) {
  return embedding == nn::PositionEmbedding::kLearned ? "learned" : "rotary";
}

std::string_view Describe(nn::Activation activation) {
  switch (activation) {
    case nn::Activation::kGelu:
      return "gelu";
    case nn::Activation::kGeluTanh:
      return "gelu_new";
    case nn::Activation::kRelu:
      return "relu";
    case nn::Activation::kSwiGlu:
      break;
  }
  return "swiglu";
}

std::string Describe(const std::optional<nn::RopeScaling>& scaling) {
  if (!scaling) return "none";
  return fmt::format(
      "llama3 (factor {}, low_freq_factor {}, high_freq_factor {}, "
      "original_max_position_embeddings {})",
      scaling->factor, scaling->low_freq_factor, scaling->high_freq_factor,
      scaling->original_max_position_embeddings);
}

}  // namespace

std::vector<std::string> Differences(const ModelConfig& a, const ModelConfig& b) {
  std::vector<std::string> result;
  if (a.family != b.family) result.push_back(fmt::format("family: {} and {}", a.family, b.family));
  const nn::TransformerConfig& x = a.transformer;
  const nn::TransformerConfig& y = b.transformer;
  const auto compare = [&](const char* name, const auto& left, const auto& right) {
    if (left != right) result.push_back(fmt::format("{}: {} and {}", name, left, right));
  };
  compare("vocab_size", x.vocab_size, y.vocab_size);
  compare("max_position_embeddings", x.max_position_embeddings, y.max_position_embeddings);
  compare("hidden_size", x.hidden_size, y.hidden_size);
  compare("num_hidden_layers", x.num_hidden_layers, y.num_hidden_layers);
  compare("num_attention_heads", x.num_attention_heads, y.num_attention_heads);
  compare("num_key_value_heads", x.num_key_value_heads, y.num_key_value_heads);
  compare("head_dim", x.head_dim, y.head_dim);
  compare("intermediate_size", x.intermediate_size, y.intermediate_size);
  compare("norm", Describe(x.norm), Describe(y.norm));
  compare("norm_eps", x.norm_eps, y.norm_eps);
  compare("activation", Describe(x.activation), Describe(y.activation));
  compare("position_embedding", Describe(x.position_embedding), Describe(y.position_embedding));
  compare("rope_theta", x.rope_theta, y.rope_theta);
  compare("rope_scaling", Describe(x.rope_scaling), Describe(y.rope_scaling));
  compare("attention_bias", x.attention_bias, y.attention_bias);
  compare("attention_output_bias", x.attention_output_bias, y.attention_output_bias);
  compare("mlp_bias", x.mlp_bias, y.mlp_bias);
  compare("tie_word_embeddings", x.tie_word_embeddings, y.tie_word_embeddings);
  compare("query_key_norm", x.query_key_norm, y.query_key_norm);
  compare("sliding_window", x.sliding_window, y.sliding_window);
  compare("max_window_layers", x.max_window_layers, y.max_window_layers);
  compare("num_local_experts", x.num_local_experts, y.num_local_experts);
  compare("num_experts_per_tok", x.num_experts_per_tok, y.num_experts_per_tok);
  compare("output_router_logits", x.output_router_logits, y.output_router_logits);
  compare("router_aux_loss_coef", x.router_aux_loss_coef, y.router_aux_loss_coef);
  compare("router_jitter_noise", x.router_jitter_noise, y.router_jitter_noise);
  compare("scale_attention", x.scale_attention, y.scale_attention);
  compare("scale_attention_by_inverse_layer_index", x.scale_attention_by_inverse_layer_index,
          y.scale_attention_by_inverse_layer_index);
  return result;
}

Model CreateModel(const ModelConfig& config, std::uint64_t seed, nn::TensorOptions options) {
  Model model{config, MakeModule(config.transformer, options)};
  Generator generator(seed);
  model.module->InitializeParameters(generator);
  return model;
}

ModelConfig LoadModelConfig(const fs::path& path) {
  if (IsFolder(path)) return LoadFolderConfig(path);
  return FamilyOfFile(path).ReadLlmcConfig(path);
}

Model LoadModel(const fs::path& path, nn::TensorOptions options) {
  Model model;
  model.config = LoadModelConfig(path);
  const ModelFamily& family = GetFamily(model.config.family);
  if (!IsFolder(path)) {
    model.module = MakeModule(model.config.transformer, options);
    family.ReadLlmcWeights(model, path);
    return model;
  }
  const checkpoint::SafetensorsFolder files(path);
  CheckSize(model.config.transformer, files);
  model.module = MakeModule(model.config.transformer, options);
  WeightPlan(family, model, files).Run(files);
  return model;
}

void SaveModel(const Model& model, const fs::path& folder, const SaveModelOptions& options) {
  RequireNoAdapters(model);
  CreateFolder(folder);
  const ModelFamily& family = GetFamily(model.config.family);
  checkpoint::WriteSafetensorsFolder(folder, WeightsForFile(family, model), options.max_shard_bytes,
                                     options.dtype);
  nlohmann::ordered_json json = family.DumpConfig(model.config);
  const auto token_ids = [&](nlohmann::ordered_json& target) {
    if (model.config.bos_token_id >= 0) target["bos_token_id"] = model.config.bos_token_id;
    const auto& eos = model.config.eos_token_ids;
    if (eos.size() == 1) target["eos_token_id"] = eos[0];
    if (eos.size() > 1) target["eos_token_id"] = eos;
  };
  token_ids(json);
  json["torch_dtype"] = ToString(options.dtype.value_or(model.module->head_weight().dtype()));
  WriteFileAtomically((folder / "config.json").string(), json.dump(2) + "\n");
  nlohmann::ordered_json generation = nlohmann::ordered_json::object();
  token_ids(generation);
  WriteFileAtomically((folder / "generation_config.json").string(), generation.dump(2) + "\n");
}

void SaveLlmcCheckpoint(const Model& model, const fs::path& file, DataType dtype) {
  RequireNoAdapters(model);
  GetFamily(model.config.family).WriteLlmc(model, file, dtype);
}

}  // namespace infini_train::models
