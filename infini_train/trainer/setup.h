#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"
#include "infini_train/data/batch_source.h"
#include "infini_train/data/tokenizer.h"
#include "infini_train/models/model.h"
#include "infini_train/nn/packed_samples.h"
#include "infini_train/parallel/ccl.h"

/// What every program does before its work: choose the device, find the model and its tokenizer.
namespace infini_train::trainer {

/// "auto" is the accelerator of this build if one is present, else the CPU. Throws Error when the
/// named device is not there. It becomes the calling thread's current device.
INFINI_TRAIN_API Device ResolveDevice(const std::string& text);

/// The devices of ranks that are threads of this process: `first` and those after it, or the CPU
/// for all. Throws Error when there are fewer.
std::vector<Device> DevicesOfRanks(Device first, std::int64_t num_ranks);

/// The type that a flag names. Throws Error naming flag and choices unless it is one of `allowed`.
DataType ParseDataTypeFlag(std::string_view flag, const std::string& text,
                           std::initializer_list<DataType> allowed);

/// float32 or bfloat16 (--dtype) as the type that matrix products run in. Throws Error on others.
std::optional<DataType> ParseAutocast(const std::string& dtype);

/// Sets the threads that CPU kernels use; 0 leaves the default. With several ranks in the process
/// each gets a part, for its calling thread. Throws Error for a negative or an absurd number.
void ApplyNumThreads(std::int64_t num_threads, int num_ranks = 1);

/// The folder or file itself where it holds a model or adapters, else the newest checkpoint of a
/// training run there. Throws Error that says what was looked for when there is neither.
std::filesystem::path ResolveModelPath(const std::string& path);

/// The tokenizer of a folder, or null where there is none.
std::shared_ptr<const Tokenizer> FindTokenizer(const std::filesystem::path& folder);

/// LoadTokenizer(name) where `name` is not empty, else FindTokenizer over the folders in turn.
std::shared_ptr<const Tokenizer> LoadOrFindTokenizer(
    const std::string& name, const std::vector<std::filesystem::path>& folders);

/// The tokens of a prompt, with those that the tokenizer puts around a text. Throws Error for one
/// that is not below the model's vocabulary, and for more than the model has positions.
std::vector<std::int64_t> EncodePrompt(const Tokenizer& tokenizer, const std::string& prompt,
                                       const nn::TransformerConfig& config);

/// Token ids [batch, sequence] of a batch, on the device; those of packed samples [1, batch *
/// sequence].
struct DeviceBatch {
  Tensor inputs;
  Tensor targets;
  nn::PackedSamples samples = {};          ///< defined for packed samples
  Tensor token_mask = {};                  ///< uint8, 0 for padding; undefined: there is none
  std::int64_t num_targets = 0;            ///< targets that count
  std::int64_t num_targets_of_others = 0;  ///< those of the other ranks

  nn::ForwardContext context() const { return {.samples = samples, .token_mask = token_mask}; }
};
/// 1 for each position of a batch that is no padding, else 0: nothing where none is.
std::vector<std::uint8_t> TokenMask(const TokenBatch& batch);
INFINI_TRAIN_API DeviceBatch ToDevice(const TokenBatch& batch, Device device);

/// Mean cross-entropy over all targets of an epoch of `batches` (at most `max_steps` batches, 0 for
/// all), in evaluation mode and without recording. With `ranks`, whose batches are parts of the
/// same, over those of all of them, which call it together.
struct EvaluationResult {
  double loss = 0.0;  ///< nats per token
  std::int64_t num_targets = 0;
};
EvaluationResult Evaluate(const models::Model& model, const BatchSource& batches,
                          std::optional<DataType> autocast_dtype, std::int64_t max_steps,
                          parallel::Communicator* ranks = nullptr);

}  // namespace infini_train::trainer
