#include "infini_train/trainer/model_source.h"

#include <fmt/format.h>

#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/trainer/setup.h"

namespace infini_train::trainer {
namespace {

namespace fs = std::filesystem;

bool HoldsModel(const fs::path& folder) {
  return PathExists(folder / "config.json");
}

bool HoldsOnlyAdapters(const fs::path& folder) {
  return models::IsLoraFolder(folder) && !HoldsModel(folder);
}

/// The model that a folder of adapters says it is for: a path, or a preset.
std::string RequireBase(const fs::path& folder) {
  const std::string base = models::LoraBase(folder);
  if (!base.empty() && (PathExists(base) || models::FindPreset(base) != nullptr)) return base;
  throw Error(fmt::format(
      "{}: base_model_name_or_path: {}; name the adapters' model with --model, and them with "
      "--lora_load_path",
      (folder / "adapter_config.json").string(),
      base.empty() ? "missing" : fmt::format("{} is not there", base)));
}

/// Throws Error for flags about adapters where there are none.
void RefuseLoraFlags(const TrainOptions& o) {
  const std::pair<const char*, bool> given[] = {
      {"lora_save_path", !o.lora_save_path.empty()},
      {"lora_alpha", o.lora_alpha >= 0.0},
      {"lora_dropout", o.lora_dropout >= 0.0},
      {"lora_target_modules", !o.lora_target_modules.empty()}};
  for (const auto& [flag, is_given] : given) {
    if (is_given)
      throw Error(
          fmt::format("{}: expected adapters (--lora_rank or --lora_load_path), got none", flag));
  }
}

}  // namespace

std::vector<fs::path> ModelSource::Folders() const {
  std::vector<fs::path> folders;
  if (!lora.empty()) folders.push_back(lora);
  folders.push_back(IsFolder(model) ? model : model.parent_path());
  return folders;
}

ModelSource FindModelSource(const std::string& model, const std::string& lora_load_path) {
  ModelSource source;
  source.model = ResolveModelPath(model);
  if (!lora_load_path.empty()) {
    source.lora = ResolveModelPath(lora_load_path);
    if (!models::IsLoraFolder(source.lora)) {
      throw Error(
          fmt::format("lora_load_path: {} holds no adapter_config.json", source.lora.string()));
    }
  } else if (HoldsOnlyAdapters(source.model)) {
    source.lora = source.model;
    source.model = ResolveModelPath(RequireBase(source.lora));
  }
  return source;
}

models::Model OpenModel(const ModelSource& source, nn::TensorOptions options) {
  models::Model model = models::LoadModel(source.model, options);
  if (!source.lora.empty()) models::Lora::Load(model, source.lora).Merge(false);
  return model;
}

fs::path WeightsOfCheckpoint(const fs::path& resume_from, TrainOptions& options) {
  const bool has_lora = options.lora_rank != 0 || !options.lora_load_path.empty();
  if (!has_lora && (resume_from.empty() || !HoldsOnlyAdapters(resume_from)))
    RefuseLoraFlags(options);
  if (resume_from.empty()) return {};
  if (!HoldsOnlyAdapters(resume_from)) {
    if (!has_lora) return resume_from;
    throw Error(
        fmt::format("load: {} is a checkpoint of a whole model; to adapt it, start a run "
                    "with --model {}",
                    resume_from.string(), resume_from.string()));
  }
  if (!options.lora_load_path.empty()) {
    throw Error(fmt::format("lora_load_path: expected none with --load, which has adapters ({})",
                            resume_from.string()));
  }
  options.lora_load_path = resume_from.string();
  if (options.model.empty() && options.llmc_filepath.empty())
    options.model = RequireBase(resume_from);
  return {};
}

std::optional<models::Lora> MakeLora(const TrainOptions& o, const models::Model& model) {
  const bool loads = !o.lora_load_path.empty();
  if (o.lora_rank == 0 && !loads) return std::nullopt;
  if (!loads) {
    models::LoraOptions options{.rank = o.lora_rank};
    if (o.lora_alpha >= 0.0) options.alpha = o.lora_alpha;
    options.dropout = o.lora_dropout >= 0.0 ? o.lora_dropout : 0.0;
    options.targets = models::ParseLoraTargets(o.lora_target_modules);
    return models::Lora(model, options, o.seed);
  }
  const fs::path folder = ResolveModelPath(o.lora_load_path);
  models::Lora lora = models::Lora::Load(model, folder);
  const auto require = [&](std::string_view flag, const auto& found, const auto& wanted) {
    if (found == wanted) return;
    throw Error(fmt::format("{}: expected {} as the adapters of {} have it, got {}", flag, found,
                            folder.string(), wanted));
  };
  if (o.lora_rank != 0) require("lora_rank", lora.options().rank, o.lora_rank);
  if (o.lora_alpha >= 0.0) require("lora_alpha", lora.options().alpha, o.lora_alpha);
  if (o.lora_dropout >= 0.0) require("lora_dropout", lora.options().dropout, o.lora_dropout);
  if (!o.lora_target_modules.empty() &&
      !lora.Adapts(models::ParseLoraTargets(o.lora_target_modules))) {
    throw Error(fmt::format("lora_target_modules: {} is not what the adapters of {} adapt",
                            o.lora_target_modules, folder.string()));
  }
  return lora;
}

std::string BaseOfLora(const TrainOptions& options, const fs::path& weights) {
  if (!weights.empty()) return fs::absolute(weights).lexically_normal().string();
  return options.model.empty() ? options.default_model : options.model;
}

}  // namespace infini_train::trainer
