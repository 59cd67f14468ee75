#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/models/lora.h"
#include "infini_train/models/model.h"
#include "infini_train/trainer/options.h"

/// Where a command's model comes from when adapters may be part of it.
namespace infini_train::trainer {

/// A model's folder or file, and a folder of adapters, or an empty path.
struct ModelSource {
  std::filesystem::path model;
  std::filesystem::path lora;

  /// Where a tokenizer may be, the best first.
  std::vector<std::filesystem::path> Folders() const;
};

/// What --model and --lora_load_path name. A model that is a folder of adapters, or a training run
/// of some, stands for them on their base. Throws Error when something is not there.
ModelSource FindModelSource(const std::string& model, const std::string& lora_load_path);

/// The model with its adapters merged for good.
models::Model OpenModel(const ModelSource& source, nn::TensorOptions options = {});

/// Where the model of a run that resumes from a checkpoint (an empty path: of none) has its
/// weights: there, or, for a checkpoint of adapters, where `options` say, who are made to load the
/// adapters and, unless they name a model, to start from the adapters' base. Throws Error where the
/// two contradict each other, and for flags about adapters in a run without any.
std::filesystem::path WeightsOfCheckpoint(const std::filesystem::path& resume_from,
                                          TrainOptions& options);

/// The adapters that a run trains: none, new ones or those of --lora_load_path. Throws Error naming
/// the flag that is wrong, or says something else than the adapters that are loaded.
std::optional<models::Lora> MakeLora(const TrainOptions& options, const models::Model& model);

/// What the adapters of a run call their base: the preset, or the absolute path of the weights.
std::string BaseOfLora(const TrainOptions& options, const std::filesystem::path& weights);

}  // namespace infini_train::trainer
