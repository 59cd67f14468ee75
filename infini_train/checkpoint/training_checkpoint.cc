#include "infini_train/checkpoint/training_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"

namespace infini_train::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint_step_";
constexpr int kFormatVersion = 1;

/// The step in a checkpoint folder's name; -1 for other names.
std::int64_t StepOf(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return -1;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  std::int64_t step = -1;
  const auto [rest, error] = std::from_chars(begin, end, step);
  return error == std::errc() && rest == end ? step : -1;
}

bool IsCheckpoint(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "training" / "state.json", error);
}

/// Checkpoints below `root`, oldest first.
std::vector<std::pair<std::int64_t, fs::path>> ListCheckpoints(const fs::path& root) {
  std::vector<std::pair<std::int64_t, fs::path>> result;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const std::int64_t step = StepOf(entry.path());
    if (step >= 0 && IsCheckpoint(entry.path())) result.emplace_back(step, entry.path());
  }
  std::sort(result.begin(), result.end());
  return result;
}

[[noreturn]] void ThrowFileError(const fs::filesystem_error& error) {
  throw Error(fmt::format("{}: {}", error.path1().string(), error.code().message()));
}

}  // namespace

void SaveTrainingState(const TrainingState& state, const fs::path& folder) {
  const fs::path training = folder / "training";
  std::error_code error;
  fs::create_directories(training, error);
  if (error) throw Error(fmt::format("{}: {}", training.string(), error.message()));
  if (!state.optimizer.empty()) {
    WriteSafetensors(training / "optimizer.safetensors", state.optimizer_state);
  }
  nlohmann::ordered_json json;
  json["version"] = kFormatVersion;
  json["step"] = state.step;
  json["optimizer"] = state.optimizer;
  json["random"]["seed"] = state.random.seed;
  json["random"]["offset"] = state.random.offset;
  json["data"] =
      nlohmann::ordered_json::parse(state.data_state.empty() ? "null" : state.data_state);
  // Written last: a folder with state.json is complete.
  WriteFileAtomically((training / "state.json").string(), json.dump(2) + "\n");
}

TrainingState LoadTrainingState(const fs::path& folder) {
  const fs::path path = folder / "training" / "state.json";
  TrainingState state;
  try {
    const nlohmann::json json = nlohmann::json::parse(ReadFile(path.string()));
    const int version = json.at("version").get<int>();
    if (version != kFormatVersion) {
      throw Error(
          fmt::format("{}: expected version {}, found {}", path.string(), kFormatVersion, version));
    }
    if (!json.at("step").is_number_integer() || json.at("step").get<std::int64_t>() < 0) {
      throw Error(fmt::format("{}: step: expected an integer of 0 or more, found {}", path.string(),
                              json.at("step").dump()));
    }
    state.step = json.at("step").get<std::int64_t>();
    state.optimizer = json.at("optimizer").get<std::string>();
    state.random.seed = json.at("random").at("seed").get<std::uint64_t>();
    state.random.offset = json.at("random").at("offset").get<std::uint64_t>();
    if (!json.at("data").is_null()) state.data_state = json.at("data").dump();
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
  if (!state.optimizer.empty()) {
    const SafetensorsFile file(folder / "training" / "optimizer.safetensors");
    for (const std::string& name : file.Names()) {
      state.optimizer_state.emplace_back(name, file.Load(name));
    }
  }
  return state;
}

void CheckWritable(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(fmt::format("{}: {}", folder.string(), error.message()));
  const fs::path probe = folder / ".write_probe";
  WriteFileAtomically(probe.string(), "");
  fs::remove(probe, error);
}

CheckpointManager::CheckpointManager(fs::path root, std::int64_t max_keep)
    : root_(std::move(root)), max_keep_(max_keep) {}

fs::path CheckpointManager::Save(std::int64_t step,
                                 const std::function<void(const fs::path&)>& write) const {
  const std::string name = fmt::format("{}{:06}", kPrefix, step);
  const fs::path target = root_ / name;
  // Hidden names are no checkpoints; a crash leaves at most these behind, and the next save of the
  // process that owns the run clears them.
  const fs::path temporary = root_ / fmt::format(".{}.writing", name);
  const fs::path replaced = root_ / fmt::format(".{}.replaced", name);
  try {
    fs::create_directories(root_);
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    write(temporary);
    fs::remove_all(replaced);
    if (fs::exists(target)) fs::rename(target, replaced);
    fs::rename(temporary, target);
    WriteFileAtomically((root_ / "latest").string(), name + "\n");
    fs::remove_all(replaced);
    const auto checkpoints = ListCheckpoints(root_);
    const auto count = static_cast<std::int64_t>(checkpoints.size());
    for (std::int64_t i = 0; max_keep_ > 0 && i < count - max_keep_; ++i) {
      const fs::path& old = checkpoints[static_cast<std::size_t>(i)].second;
      if (old == target) continue;
      // Renamed first, so that a half-removed folder is never taken for a checkpoint.
      const fs::path doomed = root_ / fmt::format(".{}.replaced", old.filename().string());
      fs::remove_all(doomed);
      fs::rename(old, doomed);
      fs::remove_all(doomed);
    }
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    ThrowFileError(error);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  return target;
}

fs::path FindCheckpoint(const fs::path& path) {
  if (IsCheckpoint(path)) return path;
  std::error_code error;
  if (fs::exists(path / "latest", error)) {
    std::string name = ReadFile((path / "latest").string());
    name.erase(name.find_last_not_of(" \n\r\t") + 1);
    if (StepOf(name) >= 0 && name.find('/') == std::string::npos && IsCheckpoint(path / name)) {
      return path / name;
    }
  }
  const auto checkpoints = ListCheckpoints(path);
  if (checkpoints.empty()) {
    throw Error(
        fmt::format("{}: expected a training checkpoint or a folder with {}* in it, found none",
                    path.string(), kPrefix));
  }
  return checkpoints.back().second;
}

}  // namespace infini_train::checkpoint
