#include "infini_train/models/lora/lora_targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "infini_train/core/error.h"
#include "infini_train/core/regex/regex.h"
#include "infini_train/models/families/model_family.h"

namespace infini_train::models {
namespace {

constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kWeight = ".weight";

bool EndsWithName(std::string_view name, std::string_view end) {
  return name == end || (name.ends_with(end) && name.size() > end.size() &&
                         name[name.size() - end.size() - 1] == '.');
}

/// The module of a parameter.
std::string ModuleOf(std::string_view parameter) {
  if (parameter.ends_with(kWeight)) parameter.remove_suffix(kWeight.size());
  return std::string(parameter);
}

/// The last `count` parts of a dotted name.
std::string LastParts(std::string_view name, int count) {
  std::size_t begin = name.size();
  for (int i = 0; i < count && begin != std::string_view::npos && begin > 0; ++i)
    begin = name.rfind('.', begin - 1);
  return std::string(begin == std::string_view::npos ? name : name.substr(begin + 1));
}

/// Whether a name of the site is one that `matches`.
bool AnyName(const LoraSite& site, const std::function<bool(const std::string&)>& matches) {
  return matches(site.layer) || matches(site.module) || matches(site.module_short) ||
         (!site.alias.empty() && matches(site.alias));
}

/// Ends of names that tell the layers of a block apart, for messages.
std::string KnownNames(const LoraSites& sites) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const LoraSite& site : sites.adaptable)
    add(LastParts(site.layer, 1));
  for (const LoraSite& site : sites.adaptable)
    add(LastParts(site.module, 1));
  return fmt::format("{}, {}", kAllLinear, fmt::join(names, ", "));
}

void RefuseOthers(const LoraSites& sites, const std::function<bool(const std::string&)>& matches,
                  const std::string& where) {
  std::vector<std::string> found;
  for (const OtherModule& other : sites.others) {
    if (matches(other.name) || matches(other.alias)) found.push_back(other.name);
  }
  if (found.empty()) return;
  constexpr std::size_t kShown = 4;  // a name may be that of every expert of every layer
  const std::size_t shown = std::min(found.size(), kShown);
  std::string names = fmt::format("{}", fmt::join(found.begin(), found.begin() + shown, ", "));
  if (shown < found.size()) names += fmt::format(" and {} more", found.size() - shown);
  throw Error(
      fmt::format("{}: only linear layers of blocks, outside of mixtures of experts, can have "
                  "adapters; found {}",
                  where, names));
}

}  // namespace

LoraTargets ParseLoraTargets(std::string_view text) {
  if (text.empty()) return {};
  const bool is_pattern = text.find_first_of("*+?()[]{}|^$\\") != std::string_view::npos;
  if (is_pattern || text == kAllLinear) return {{}, std::string(text)};
  LoraTargets targets;
  while (true) {
    const std::size_t comma = text.find(',');
    targets.names.emplace_back(text.substr(0, comma));
    if (targets.names.back().empty()) {
      throw Error("lora_target_modules: expected names separated by commas, found an empty one");
    }
    if (comma == std::string_view::npos) return targets;
    text.remove_prefix(comma + 1);
  }
}

LoraSites FindLoraSites(const Model& model) {
  const ModelFamily& family = GetFamily(model.config.family);
  std::unordered_map<std::string, nn::Linear*> linears;
  for (const auto& [name, module] : model.module->NamedModules()) {
    auto* linear = dynamic_cast<nn::Linear*>(module);
    if (linear != nullptr && name.starts_with("h.")) linears.emplace(name, linear);
  }
  const std::string prefix(family.optional_prefix());
  LoraSites sites;
  std::map<std::string, std::string> others;
  const auto add_other = [&](const std::string& layer, const std::string& module) {
    if (module != layer) others.emplace(prefix + module, module);
    others.emplace(layer, module == layer ? prefix + module : layer);
  };
  for (const WeightMapping& mapping : family.WeightMap(model.config)) {
    if (mapping.parameter.ends_with(".bias")) continue;
    const std::string layer = ModuleOf(mapping.parameter);
    const auto found = linears.find(layer);
    if (found == linears.end() && !mapping.whole.empty()) add_other(layer, ModuleOf(mapping.whole));
    std::int64_t row = 0;
    for (const WeightPart& part : mapping.parts) {
      const std::string module = ModuleOf(part.name);
      if (found == linears.end()) {
        add_other(layer, module);
        continue;
      }
      LoraSite site;
      site.linear = found->second;
      site.layer = layer;
      site.module = prefix + module;
      site.module_short = module;
      // Adapters that were made where the gate is a layer beside c_fc have this name of it.
      if (layer.ends_with(".c_fc") && mapping.parts.size() == 2 && row == 0)
        site.alias = layer + "2";
      site.row = row;
      site.features = part.rows >= 0 ? part.rows : found->second->weight().size(0);
      row += site.features;
      sites.adaptable.push_back(std::move(site));
    }
  }
  for (const auto& [name, alias] : others)
    sites.others.push_back({name, alias});
  return sites;
}

std::vector<LoraSite> SelectLoraSites(const LoraSites& sites, const LoraTargets& targets,
                                      UnknownNames unknown, const std::string& where) {
  if (targets.pattern == kAllLinear) return sites.adaptable;
  std::vector<std::function<bool(const std::string&)>> conditions;
  if (!targets.pattern.empty()) {
    // Whatever it means in the parentheses below, it must be a pattern by itself.
    Regex(targets.pattern, where);
    const auto regex =
        std::make_shared<const Regex>(fmt::format("^(?:{})$", targets.pattern), where);
    conditions.emplace_back([regex](const std::string& name) {
      std::size_t begin = 0;
      std::size_t end = 0;
      return regex->Find(name, 0, begin, end);
    });
  }
  for (const std::string& target : targets.names) {
    conditions.emplace_back(
        [&target](const std::string& name) { return EndsWithName(name, target); });
  }
  std::vector<bool> chosen(sites.adaptable.size(), false);
  std::vector<std::string> unmatched;
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    RefuseOthers(sites, conditions[i], where);
    bool any = false;
    for (std::size_t site = 0; site < sites.adaptable.size(); ++site) {
      if (!AnyName(sites.adaptable[site], conditions[i])) continue;
      chosen[site] = any = true;
    }
    if (!any) unmatched.push_back(targets.pattern.empty() ? targets.names[i] : targets.pattern);
  }
  const bool none = std::find(chosen.begin(), chosen.end(), true) == chosen.end();
  if (none || (unknown == UnknownNames::kRefuse && !unmatched.empty())) {
    throw Error(
        fmt::format("{}: {} matches no linear layer of the model's blocks; expected {}, an "
                    "end of a dotted name, or a pattern for whole names",
                    where, fmt::join(unmatched, ", "), KnownNames(sites)));
  }
  std::vector<LoraSite> result;
  for (std::size_t site = 0; site < chosen.size(); ++site) {
    if (chosen[site]) result.push_back(sites.adaptable[site]);
  }
  return result;
}

LoraTargets DescribeLoraSites(const LoraSites& sites, const std::vector<LoraSite>& chosen) {
  // The shortest ends that say no more than they should.
  for (int parts = 1; parts <= 2; ++parts) {
    std::set<std::string> ends;
    for (const LoraSite& site : chosen)
      ends.insert(LastParts(site.module, parts));
    const auto is_meant = [&](const std::string& name) {
      return std::any_of(ends.begin(), ends.end(),
                         [&](const std::string& end) { return EndsWithName(name, end); });
    };
    const auto matched = std::count_if(sites.adaptable.begin(), sites.adaptable.end(),
                                       [&](const LoraSite& site) { return is_meant(site.module); });
    if (static_cast<std::size_t>(matched) == chosen.size() &&
        std::none_of(sites.others.begin(), sites.others.end(),
                     [&](const OtherModule& other) { return is_meant(other.name); })) {
      return {{ends.begin(), ends.end()}, {}};
    }
  }
  LoraTargets all;
  for (const LoraSite& site : chosen)
    all.names.push_back(site.module);
  return all;
}

}  // namespace infini_train::models
