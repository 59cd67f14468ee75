#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/file.h"
#include "infini_train/data/token_shard.h"
#include "infini_train/models/lora.h"
#include "infini_train/models/model.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/kernel_library.h"
#include "infini_train/trainer/commands.h"
#include "infini_train/trainer/setup.h"

namespace infini_train::trainer {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

void DescribeDevices(std::FILE* out) {
  for (int i = 0; i < kNumDeviceTypes; ++i) {
    const auto type = static_cast<DeviceType>(i);
    if (!HasDeviceGuardImpl(type)) continue;
    const DeviceGuardImpl& impl = GetDeviceGuardImpl(type);
    int kernels = 0;
    for (int op = 0; op < kNumOps; ++op)
      kernels += HasKernel(type, static_cast<OpId>(op));
    for (int index = 0; index < impl.DeviceCount(); ++index) {
      const DeviceProperties properties = impl.Properties(index);
      fmt::print(out,
                 "device {}: {}, {} compute units, {:.1f} GiB memory, kernels for {} of {} ops\n",
                 Device(type, index).ToString(), properties.name, properties.compute_units,
                 static_cast<double>(properties.total_memory) / kGibibyte, kernels, kNumOps);
    }
  }
}

void DescribeConfig(const models::ModelConfig& config, std::FILE* out) {
  const nn::TransformerConfig& t = config.transformer;
  fmt::print(
      out,
      "{}: {} parameters, {} layers, hidden size {}, {} attention heads ({} key/value) of {}, "
      "intermediate size {}, vocabulary {}, {} positions\n",
      config.family, t.NumParameters(), t.num_hidden_layers, t.hidden_size, t.num_attention_heads,
      t.num_key_value_heads, t.head_dim, t.intermediate_size, t.vocab_size,
      t.max_position_embeddings);
  if (t.num_local_experts > 0) {
    fmt::print(
        out, "{} experts a layer, {} for a token; {}\n", t.num_local_experts, t.num_experts_per_tok,
        t.output_router_logits
            ? fmt::format("trained with the load-balancing loss times {}", t.router_aux_loss_coef)
            : "trained without the load-balancing loss");
  }
}

void DescribeAdapters(const std::filesystem::path& folder, std::FILE* out) {
  const models::LoraOptions lora = models::ReadLoraOptions(folder);
  const std::string base = models::LoraBase(folder);
  fmt::print(out, "adapters: rank {}, alpha {}{}, dropout {}, of {}; base {}\n", lora.rank,
             lora.alpha, lora.rank_stabilized ? " (rank-stabilised)" : "", lora.dropout,
             lora.targets.pattern.empty() ? fmt::format("{}", fmt::join(lora.targets.names, ", "))
                                          : lora.targets.pattern,
             base.empty() ? "not named" : base);
}

}  // namespace

void InfoCommand(const InfoOptions& options, std::FILE* out) {
  if (options.path.empty()) {
    if (options.device == "auto") {
      fmt::print(out, "InfiniTrain {}\n", INFINI_TRAIN_VERSION);
      DescribeDevices(out);
      for (const models::Preset& preset : models::Presets()) {
        fmt::print(out, "preset {}{}: {}\n", preset.name,
                   preset.alias.empty() ? "" : fmt::format(" ({})", preset.alias),
                   preset.description);
      }
    } else {
      const Device device = ResolveDevice(options.device);
      const DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
      fmt::print(out, "device {}: {}\n", device.ToString(), impl.Properties(device.index()).name);
      for (const RuntimeSetting& setting : impl.Settings())
        fmt::print(out, "  {} = {} ({})\n", setting.name, setting.value, setting.origin);
      for (int op = 0; op < kNumOps; ++op) {
        const auto id = static_cast<OpId>(op);
        const std::string library = KernelLibrary(device.type(), id);
        fmt::print(out, "  {:<24} {}{}\n", GetOpInfo(id).name,
                   HasKernel(device.type(), id) ? "kernel" : "-",
                   library.empty() ? "" : ", " + library);
      }
    }
    return;
  }
  if (const models::Preset* preset = models::FindPreset(options.path)) {
    DescribeConfig(preset->config, out);
    return;
  }
  if (TokenShard::HasMagic(options.path)) {
    const TokenShard shard(options.path);
    std::int64_t largest = -1;
    std::vector<std::int64_t> block(std::size_t{1} << 20);
    for (std::int64_t begin = 0; begin < shard.size();
         begin += static_cast<std::int64_t>(block.size())) {
      const auto left = static_cast<std::size_t>(shard.size() - begin);
      if (left < block.size()) block.resize(left);
      largest = std::max(largest, shard.Read(begin, block));
    }
    fmt::print(out, "{}: {} tokens of {} bytes, largest id {}\n", options.path, shard.size(),
               TokenSize(shard.type()), largest);
    return;
  }
  const std::filesystem::path path = ResolveModelPath(options.path);
  if (models::IsLoraFolder(path) && !PathExists(path / "config.json")) {
    DescribeAdapters(path, out);
    return;
  }
  DescribeConfig(models::LoadModelConfig(path), out);
}

}  // namespace infini_train::trainer
