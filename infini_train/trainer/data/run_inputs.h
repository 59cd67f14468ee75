#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "infini_train/data/tokenizer.h"
#include "infini_train/models/model.h"
#include "infini_train/trainer/data/input_data.h"
#include "infini_train/trainer/options.h"

namespace infini_train::trainer {

/// What all ranks of a training run share. It is found and checked before any model is built: a
/// mistyped path should not cost a minute.
struct RunInputs {
  /// Throws Error for what CheckTrainOptions refuses, and for what the files do not hold.
  explicit RunInputs(const TrainOptions& given);

  TrainOptions options;  ///< as given, with what a checkpoint of adapters says besides
  std::int64_t accumulation_steps = 1;
  std::filesystem::path resume_from;           ///< a checkpoint; or empty
  std::filesystem::path weights_from;          ///< the same where it has a model's weights
  std::shared_ptr<const Tokenizer> tokenizer;  ///< or null
  models::ModelConfig config;
  std::optional<InputData> train;  ///< always there
  std::optional<InputData> validation;
};

}  // namespace infini_train::trainer
