#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "infini_train/models/model.h"
#include "infini_train/nn/transformer.h"
#include "infini_train/optim/lr_scheduler.h"
#include "infini_train/optim/optimizer.h"
#include "infini_train/trainer/options.h"

/// From the options of a training run to its parts; everything that a user can get wrong is found
/// here, before anything is built or written. All throw Error naming the flag.
namespace infini_train::trainer {

/// The type of the parameters (--param_dtype): float32, or bfloat16 beside --dtype bfloat16.
DataType ParseParamDataType(const TrainOptions& options);

/// Checks every number on its own and against the others; returns the number of micro-batches that
/// each rank has in a step, total_batch_size / (batch_size * sequence_length *
/// nthread_per_process), which must divide.
std::int64_t CheckTrainOptions(const TrainOptions& options);

optim::LrSchedule MakeSchedule(const TrainOptions& options);

/// Where the weights come from; empty for a new model.
std::filesystem::path WeightsPath(const TrainOptions& options,
                                  const std::filesystem::path& resume_from);

/// The configuration of the run's model: the checkpoint's where one is loaded (which must then be
/// that of --model if that is given: the differences are listed), else the folder's, file's or
/// preset's. A new model takes the tokenizer's vocabulary (`vocab_size`, 0 for none).
models::ModelConfig ChooseModelConfig(const TrainOptions& options,
                                      const std::filesystem::path& resume_from,
                                      std::int64_t vocab_size);

/// Throws Error when sequences are longer than the model's positions.
void CheckFits(const TrainOptions& options, const models::ModelConfig& config);

/// Sets the process's kernel of attention (--attention). Throws Error where the device does not
/// have the one that is asked for.
void ApplyAttentionKernel(const std::string& name, Device device);

nn::ActivationCheckpointing MakeCheckpointing(const TrainOptions& options);

/// Of the parameters that are trained.
std::unique_ptr<optim::Optimizer> MakeOptimizer(const TrainOptions& options,
                                                const models::Model& model);

}  // namespace infini_train::trainer
