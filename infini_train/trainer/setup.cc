#include "infini_train/trainer/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/checkpoint/training_checkpoint.h"
#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/environment.h"
#include "infini_train/core/device/launch_overlap.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/core/threads.h"
#include "infini_train/models/lora.h"
#include "infini_train/ops/fallback.h"
#include "infini_train/ops/profiler.h"
#include "infini_train/trainer/sampler.h"

namespace infini_train::trainer {
namespace {

/// Threads that share the CPU.
constexpr std::int64_t kMaxRanks = 1024;

/// What the environment asks of devices. A bad value is found here, before any work.
void ApplyEnvironment() {
  GetFallbackMode();
  if (const auto on = GetEnvironmentSwitch("INFINI_TRAIN_DETERMINISTIC")) SetDeterministic(*on);
  if (const auto on = GetEnvironmentSwitch("INFINI_TRAIN_PROFILER_RANGES")) SetProfilerRanges(*on);
  if (const auto on = GetEnvironmentSwitch("INFINI_TRAIN_EXPANDABLE_SEGMENTS"))
    allocator::SetExpandableSegments(*on);
  if (const auto on = GetEnvironmentSwitch("INFINI_TRAIN_LAUNCH_OVERLAP"))
    LaunchOverlap::SetEnabled(*on);
}

/// The device that the text names.
Device FindDevice(const std::string& text) {
  if (text != "auto") {
    const Device device = Device::Parse(text);
    const int count = GetDeviceGuardImpl(device.type()).DeviceCount();
    if (device.index() >= count) {
      throw Error(fmt::format("device {}: there are {} devices of this kind", text, count));
    }
    return device;
  }
  for (const DeviceType type : {DeviceType::kPrivateUse1, DeviceType::kCUDA}) {
    if (HasDeviceGuardImpl(type) && GetDeviceGuardImpl(type).DeviceCount() > 0) return type;
  }
  return DeviceType::kCPU;
}

}  // namespace

Device ResolveDevice(const std::string& text) {
  ApplyEnvironment();
  const Device device = FindDevice(text);
  // Else each call on another than the first device would change to it and back.
  GetDeviceGuardImpl(device.type()).SetDevice(device.index());
  return device;
}

std::vector<Device> DevicesOfRanks(Device first, std::int64_t num_ranks) {
  const int count = GetDeviceGuardImpl(first.type()).DeviceCount();
  const std::int64_t most = first.is_cpu() ? kMaxRanks : count - first.index();
  if (num_ranks < 1 || num_ranks > most) {
    throw Error(fmt::format(
        "nthread_per_process: expected 1 to {}{}, got {}", most,
        first.is_cpu() ? ""
                       : fmt::format(", the devices of {} from {} on",
                                     infini_train::ToString(first.type()), first.ToString()),
        num_ranks));
  }
  std::vector<Device> devices;
  for (int rank = 0; rank < static_cast<int>(num_ranks); ++rank)
    devices.push_back(first.is_cpu() ? first : Device(first.type(), first.index() + rank));
  return devices;
}

DataType ParseDataTypeFlag(std::string_view flag, const std::string& text,
                           std::initializer_list<DataType> allowed) {
  std::optional<DataType> parsed;
  try {
    parsed = ParseDataType(text);
  } catch (const Error&) {
    // No type at all is said to be none of those that are allowed.
  }
  std::string choices;
  for (const DataType& choice : allowed) {
    if (parsed == choice) return choice;
    if (!choices.empty()) choices += &choice + 1 == allowed.end() ? " or " : ", ";
    choices += ToString(choice);
  }
  throw Error(fmt::format("{}: expected {}, got {}", flag, choices, text));
}

std::optional<DataType> ParseAutocast(const std::string& dtype) {
  const DataType parsed =
      ParseDataTypeFlag("dtype", dtype, {DataType::kFloat32, DataType::kBFloat16});
  return parsed == DataType::kFloat32 ? std::nullopt : std::optional(parsed);
}

void ApplyNumThreads(std::int64_t num_threads, int num_ranks) {
  constexpr std::int64_t kMost = 4096;
  if (num_threads < 0 || num_threads > kMost) {
    throw Error(fmt::format("num_threads: expected 0 to {}, got {}", kMost, num_threads));
  }
  if (num_threads > 0) SetNumThreads(static_cast<int>(num_threads));
  if (num_ranks > 1) SetNumThreads(std::max(GetNumThreads() / num_ranks, 1));
}

std::filesystem::path ResolveModelPath(const std::string& path) {
  if (!PathExists(path)) {
    throw Error(fmt::format(
        "{}: no such model folder or checkpoint file{}", path,
        models::FindPreset(path) != nullptr ? " (a preset of that name has no weights yet)" : ""));
  }
  const std::filesystem::path folder(path);
  if (!IsFolder(folder) || PathExists(folder / "config.json") || models::IsLoraFolder(folder)) {
    return folder;
  }
  try {
    return checkpoint::FindCheckpoint(folder);
  } catch (const Error&) {
    throw Error(fmt::format(
        "{}: expected a model (config.json), adapters (adapter_config.json) or checkpoints "
        "(checkpoint_step_*), found none",
        path));
  }
}

std::shared_ptr<const Tokenizer> FindTokenizer(const std::filesystem::path& folder) {
  if (!PathExists(folder / "tokenizer.json")) return nullptr;
  return LoadTokenizer(folder.string());
}

std::shared_ptr<const Tokenizer> LoadOrFindTokenizer(
    const std::string& name, const std::vector<std::filesystem::path>& folders) {
  if (!name.empty()) return LoadTokenizer(name);
  for (const std::filesystem::path& folder : folders) {
    if (auto tokenizer = FindTokenizer(folder)) return tokenizer;
  }
  return nullptr;
}

std::vector<std::int64_t> EncodePrompt(const Tokenizer& tokenizer, const std::string& prompt,
                                       const nn::TransformerConfig& config) {
  std::vector<std::int64_t> tokens;
  for (const std::int32_t id : tokenizer.Encode(prompt, true)) {
    if (id >= config.vocab_size) {
      throw Error(
          fmt::format("token {} of the prompt is not below the model's vocabulary of {}; is this "
                      "its tokenizer ({})?",
                      id, config.vocab_size, tokenizer.name()));
    }
    tokens.push_back(id);
  }
  CheckPromptLength(static_cast<std::int64_t>(tokens.size()), config);
  return tokens;
}

std::vector<std::uint8_t> TokenMask(const TokenBatch& batch) {
  if (batch.row_lengths.empty()) return {};
  std::vector<std::uint8_t> mask(batch.inputs.size(), 0);
  auto row = mask.begin();
  for (const std::int64_t length : batch.row_lengths) {
    std::fill_n(row, length, std::uint8_t{1});
    row += batch.sequence_length;
  }
  return mask;
}

DeviceBatch ToDevice(const TokenBatch& batch, Device device) {
  const bool packed = !batch.sample_lengths.empty();
  const std::int64_t positions = batch.batch_size * batch.sequence_length;
  const Dims shape = packed ? Dims{1, positions} : Dims{batch.batch_size, batch.sequence_length};
  DeviceBatch result;
  result.inputs = To(Tensor::FromVector(batch.inputs, shape), device);
  result.targets = To(Tensor::FromVector(batch.targets, shape), device);
  if (packed) result.samples = nn::PackSamples(batch.sample_lengths, positions, device);
  if (const std::vector<std::uint8_t> mask = TokenMask(batch); !mask.empty())
    result.token_mask = To(Tensor::FromVector(mask, shape), device);
  result.num_targets = batch.num_targets;
  result.num_targets_of_others = batch.num_targets_of_others;
  return result;
}

EvaluationResult Evaluate(const models::Model& model, const BatchSource& batches,
                          std::optional<DataType> autocast_dtype, std::int64_t max_steps,
                          parallel::Communicator* ranks) {
  const NoGrad no_grad;
  const Autocast autocast(autocast_dtype);
  const Device device = model.module->head_weight().device();
  const bool was_training = model.module->training();
  model.module->Train(false);
  EvaluationResult result;
  double sum = 0.0;
  const std::int64_t all_steps = batches.steps_per_epoch();
  const std::int64_t steps = max_steps == 0 ? all_steps : std::min(max_steps, all_steps);
  for (std::int64_t step = 0; step < steps; ++step) {
    const TokenBatch batch = batches.Make(0, step);
    if (batch.num_targets == 0) continue;
    const DeviceBatch tokens = ToDevice(batch, device);
    sum += model.module->Loss(tokens.inputs, tokens.targets, 1.0, tokens.context()).Item();
    result.num_targets += batch.num_targets;
  }
  model.module->Train(was_training);
  if (ranks != nullptr) {
    const double own[] = {sum, static_cast<double>(result.num_targets)};
    const Tensor sums = Tensor::Empty({2}, DataType::kFloat64, ranks->device());
    sums.CopyFromHost(own, sizeof(own));
    ranks->AllReduce(sums);
    const std::vector<double> of_all = sums.ToVector<double>();
    ranks->CheckErrors();
    sum = of_all[0];
    result.num_targets = static_cast<std::int64_t>(of_all[1]);
  }
  result.loss = sum / static_cast<double>(std::max<std::int64_t>(result.num_targets, 1));
  return result;
}

}  // namespace infini_train::trainer
