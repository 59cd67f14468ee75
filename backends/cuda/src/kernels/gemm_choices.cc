#include "kernels/gemm_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"

namespace infini_train::cuda {
namespace {

constexpr std::string_view kFirstLine = "infini_train gemm choices 1\n";
constexpr std::size_t kWords = sizeof(cublasLtMatmulAlgo_t) / sizeof(std::uint64_t);
/// Digits of a 64-bit word in base 16, and a space.
constexpr std::size_t kWordText = 17;

std::string PathFromEnvironment() {
  if (const char* path = std::getenv("INFINI_TRAIN_GEMM_CACHE")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/infini_train/gemm.txt";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/infini_train/gemm.txt";
  return {};
}

std::string NameOf(const std::string& device, const GemmProblem::Key& problem) {
  return fmt::format("{}\t{}\t{}", device, cublasLtGetVersion(), fmt::join(problem, ","));
}

std::string ToText(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data)
    text += fmt::format("{:016x} ", word);
  text.pop_back();
  return text;
}

std::optional<cublasLtMatmulAlgo_t> Parse(std::string_view text) {
  if (text.size() + 1 != kWords * kWordText) return std::nullopt;
  cublasLtMatmulAlgo_t algorithm = {};
  for (std::size_t i = 0; i < kWords; ++i) {
    const char* begin = text.data() + i * kWordText;
    const char* end = begin + kWordText - 1;
    std::uint64_t word = 0;
    if (std::from_chars(begin, end, word, 16).ptr != end) return std::nullopt;
    if (i + 1 < kWords && *end != ' ') return std::nullopt;
    algorithm.data[i] = word;
  }
  return algorithm;
}

/// Adds the lines of a file's text that are not known yet; whether all of them are whole.
bool Merge(std::string_view text, std::map<std::string, std::string>& lines) {
  bool whole = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end);
    const std::size_t tab = line.rfind('\t');
    if (tab != std::string_view::npos && Parse(line.substr(tab + 1))) {
      lines.emplace(line.substr(0, tab), line.substr(tab + 1));
    } else {
      whole = false;
    }
    text.remove_prefix(end + 1);
  }
  return whole;
}

}  // namespace

GemmChoices& GemmChoices::Get() {
  static GemmChoices& choices = *new GemmChoices(PathFromEnvironment());
  return choices;
}

GemmChoices::GemmChoices(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  try {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    Load();
  } catch (const std::exception& error) {
    GiveUp(error.what());
  }
}

void GemmChoices::GiveUp(const std::string& why) {
  fmt::print(stderr, "warning: the cache of matrix product algorithms is not used: {}\n", why);
  path_.clear();
}

void GemmChoices::Load() {
  if (!std::filesystem::exists(path_)) return;
  const std::string text = ReadFile(path_);
  if (!text.starts_with(kFirstLine)) {
    GiveUp(fmt::format("{} is not such a file", path_));
  } else if (!Merge(std::string_view(text).substr(kFirstLine.size()), lines_) &&
             !std::exchange(warned_of_damage_, true)) {
    fmt::print(stderr, "warning: {} is damaged: some algorithms are looked for again\n", path_);
  }
}

void GemmChoices::Save() {
  if (path_.empty()) return;
  try {
    Load();  // What other processes have found meanwhile stays.
    if (path_.empty()) return;
    std::string text(kFirstLine);
    for (const auto& [name, algorithm] : lines_)
      text += fmt::format("{}\t{}\n", name, algorithm);
    WriteFileAtomically(path_, text);
  } catch (const std::exception& error) {
    GiveUp(error.what());
  }
}

bool GemmChoices::has_file() const {
  const std::lock_guard lock(mutex_);
  return !path_.empty();
}

std::optional<cublasLtMatmulAlgo_t> GemmChoices::Find(const std::string& device,
                                                      const GemmProblem::Key& problem) const {
  const std::lock_guard lock(mutex_);
  const auto found = lines_.find(NameOf(device, problem));
  return found == lines_.end() ? std::nullopt : Parse(found->second);
}

cublasLtMatmulAlgo_t GemmChoices::Keep(const std::string& device, const GemmProblem::Key& problem,
                                       const cublasLtMatmulAlgo_t& algorithm) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = lines_.emplace(NameOf(device, problem), ToText(algorithm));
  if (is_new) Save();
  return Parse(place->second).value_or(algorithm);
}

void GemmChoices::Drop(const std::string& device, const GemmProblem::Key& problem) {
  const std::lock_guard lock(mutex_);
  lines_.erase(NameOf(device, problem));
}

}  // namespace infini_train::cuda
