#include "infini_train/models/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/models/families/model_family.h"
#include "infini_train/models/lora/lora_targets.h"
#include "infini_train/models/lora/peft_files.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTargetsFlag = "lora_target_modules";

/// As the programs of InfiniTrain have it.
LoraTargets DefaultTargets(const Model& model) {
  if (model.config.family == "gpt2") return {{"c_attn", "c_proj"}, {}};
  return ParseLoraTargets("all-linear");
}

double ScaleOf(const LoraOptions& options) {
  const auto rank = static_cast<double>(options.rank);
  return options.alpha / (options.rank_stabilized ? std::sqrt(rank) : rank);
}

void CheckNumbers(const LoraOptions& options) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 20;
  if (options.rank <= 0 || options.rank > kLargest) {
    throw Error(fmt::format("lora_rank: expected 1 to {}, got {}", kLargest, options.rank));
  }
  if (!(options.alpha > 0.0) || !std::isfinite(options.alpha)) {
    throw Error(fmt::format("lora_alpha: expected a positive number, got {}", options.alpha));
  }
  if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
    throw Error(fmt::format("lora_dropout: expected 0 <= p < 1, got {}", options.dropout));
  }
}

/// Whether Hugging Face keeps the weights of a model's layers as [in, out].
bool IsStoredTransposed(const Model& model, const LoraSite& site) {
  for (const WeightMapping& mapping : GetFamily(model.config.family).WeightMap(model.config)) {
    if (mapping.parameter == site.layer + ".weight") return mapping.parts.front().transposed;
  }
  return false;
}

/// The adapter of a site.
const nn::LoraAdapters::Adapter& AdapterOf(const LoraSite& site) {
  for (const auto& adapter : site.linear->lora()->adapters()) {
    if (adapter.row == site.row) return adapter;
  }
  throw Error(fmt::format("{} has no adapter", site.module));
}

}  // namespace

Lora::Lora() = default;
Lora::~Lora() = default;
Lora::Lora(Lora&&) noexcept = default;
Lora& Lora::operator=(Lora&&) noexcept = default;

Lora::Lora(const Model& model, const LoraOptions& options, std::uint64_t seed) : options_(options) {
  CheckNumbers(options_);
  if (options_.targets == LoraTargets{}) options_.targets = DefaultTargets(model);
  const LoraSites sites = FindLoraSites(model);
  std::vector<LoraSite> chosen =
      SelectLoraSites(sites, options_.targets, UnknownNames::kRefuse, kTargetsFlag);
  options_.targets = DescribeLoraSites(sites, chosen);
  Build(model, std::move(chosen), seed);
}

Lora Lora::Load(const Model& model, const fs::path& folder) {
  Lora lora;
  lora.options_ = ReadPeftConfig(folder).options;
  const LoraSites sites = FindLoraSites(model);
  const std::string where = PeftConfigPath(folder).string() + ": target_modules";
  std::vector<LoraSite> chosen =
      SelectLoraSites(sites, lora.options_.targets, UnknownNames::kIgnore, where);
  const checkpoint::SafetensorsFile file(PeftWeightsPath(folder));
  const std::vector<PeftWeights> weights = FindPeftWeights(file, chosen, lora.options_.rank);
  lora.options_.targets = DescribeLoraSites(sites, chosen);
  lora.Build(model, std::move(chosen), 0);
  const NoGrad no_grad;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const nn::LoraAdapters::Adapter& adapter = AdapterOf(lora.sites_[i]);
    CopyInPlace(adapter.a, weights[i].a);
    CopyInPlace(adapter.b, weights[i].b);
  }
  return lora;
}

void Lora::Build(const Model& model, std::vector<LoraSite> sites, std::uint64_t seed) {
  for (const LoraSite& site : sites) {
    if (site.linear->lora()) throw Error(fmt::format("LoRA: {} has adapters already", site.layer));
  }
  model_ = model;
  sites_ = std::move(sites);
  for (const Tensor& parameter : model_.module->Parameters())
    parameter.set_requires_grad(false);
  // Another sequence than the weights of a new model are drawn from.
  constexpr std::uint64_t kOfAdapters = 0x4C6F5241;
  Generator generator(seed ^ (kOfAdapters << 32));
  for (const LoraSite& site : sites_) {
    const Tensor& weight = site.linear->weight();
    if (!site.linear->lora()) {
      auto adapters = std::make_shared<nn::LoraAdapters>(
          weight.size(1),
          nn::LoraAdapters::Options{options_.rank, ScaleOf(options_), options_.dropout},
          weight.device());
      adapters->Train(model_.module->training());
      site.linear->set_lora(std::move(adapters));
    }
    site.linear->lora()->Add(site.module.substr(site.module.rfind('.') + 1), site.row,
                             site.features, generator);
  }
}

bool Lora::Adapts(const LoraTargets& targets) const {
  const std::vector<LoraSite> others =
      SelectLoraSites(FindLoraSites(model_), targets, UnknownNames::kRefuse, kTargetsFlag);
  return std::equal(sites_.begin(), sites_.end(), others.begin(), others.end(),
                    [](const LoraSite& a, const LoraSite& b) { return a.module == b.module; });
}

std::int64_t Lora::num_parameters() const {
  std::int64_t count = 0;
  for (const LoraSite& site : sites_)
    count += AdapterOf(site).a.numel() + AdapterOf(site).b.numel();
  return count;
}

void Lora::Save(const fs::path& folder, const std::string& base) const {
  CreateFolder(folder);
  WritePeftWeights(folder, sites_);
  WriteFileAtomically(PeftConfigPath(folder).string(),
                      DumpPeftConfig({options_, base}, IsStoredTransposed(model_, sites_.front())));
}

void Lora::Merge(bool keep_base) {
  for (const LoraSite& site : sites_) {
    if (!site.linear->lora()->merged())
      site.linear->lora()->Merge(site.linear->weight(), keep_base);
  }
}

void Lora::Unmerge() {
  for (const LoraSite& site : sites_) {
    // Of several sites of one layer, the first.
    const bool is_first = &site.linear->lora()->adapters().front() == &AdapterOf(site);
    if (is_first) site.linear->lora()->Unmerge(site.linear->weight());
  }
}

bool IsLoraFolder(const fs::path& folder) {
  return PathExists(PeftConfigPath(folder));
}

LoraOptions ReadLoraOptions(const fs::path& folder) {
  return ReadPeftConfig(folder).options;
}

std::string LoraBase(const fs::path& folder) {
  return ReadPeftConfig(folder).base;
}

}  // namespace infini_train::models
