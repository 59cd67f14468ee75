// Opening a model beside reading its files: the contract is in benchmarks/README.md.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/threads.h"
#include "infini_train/models/model.h"
#include "infini_train/trainer/setup.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = "llama3.2-1b";
  std::string folder;
  std::string file_dtype = "bfloat16";
  std::string param_dtype = "float32";
  std::string device = "cpu";
  int rounds = 3;
  int threads = 0;
};

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Reads every weight file from front to back, into memory of its size. Gives the bytes.
std::int64_t ReadWeights(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto size = static_cast<std::int64_t>(entry.file_size());
    const Tensor memory = Tensor::Empty({size}, DataType::kUInt8);
    std::ifstream file;
    file.rdbuf()->pubsetbuf(nullptr, 0);
    file.open(entry.path(), std::ios::binary);
    file.read(static_cast<char*>(memory.raw_data()), size);
    bytes += file.gcount();
  }
  return bytes;
}

void Run(const Options& o) {
  if (o.threads > 0) SetNumThreads(o.threads);
  const Device device = trainer::ResolveDevice(o.device);
  const fs::path folder(o.folder);
  if (!fs::exists(folder / "config.json")) {
    const models::Preset* preset = models::FindPreset(o.model);
    if (preset == nullptr) throw Error(fmt::format("{}: no such preset", o.model));
    const DataType dtype = ParseDataType(o.file_dtype);
    models::SaveModel(models::CreateModel(preset->config, 0, {.device = {}, .dtype = dtype}),
                      folder);
  }
  const nn::TensorOptions options{device, ParseDataType(o.param_dtype)};
  double read_seconds = std::numeric_limits<double>::infinity();
  double load_seconds = read_seconds;
  std::int64_t file_bytes = 0;
  std::int64_t parameters = 0;
  std::size_t peak_device_bytes = 0;
  // In turn: what disturbs one disturbs the other.
  for (int round = 0; round < o.rounds; ++round) {
    Clock::time_point begin = Clock::now();
    file_bytes = ReadWeights(folder);
    read_seconds = std::min(read_seconds, Seconds(begin));
    allocator::EmptyCache(Device());
    allocator::EmptyCache(device);
    allocator::ResetPeakStats(device);
    begin = Clock::now();
    const models::Model model = models::LoadModel(folder, options);
    Synchronize(device);
    load_seconds = std::min(load_seconds, Seconds(begin));
    parameters = model.config.transformer.NumParameters();
    peak_device_bytes = allocator::Stats(device).peak_allocated;
  }
  const double parameter_bytes =
      static_cast<double>(parameters) * static_cast<double>(SizeOf(options.dtype));
  nlohmann::ordered_json json;
  json["parameters"] = parameters;
  json["file_bytes"] = file_bytes;
  json["read_seconds"] = read_seconds;
  json["load_seconds"] = load_seconds;
  json["load_over_read"] = load_seconds / read_seconds;
  json["peak_over_parameters"] = static_cast<double>(peak_device_bytes) / parameter_bytes;
  fmt::print("{}\n", json.dump());
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
  infini_train::Options options;
  CLI::App app("Times opening a model beside reading its files and prints one JSON line.");
  app.add_option("--folder", options.folder, "model folder; made of --model where there is none")
      ->required();
  app.add_option("--model", options.model, "preset");
  app.add_option("--file_dtype", options.file_dtype, "of the weights that are made");
  app.add_option("--param_dtype", options.param_dtype, "of the parameters");
  app.add_option("--device", options.device);
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "0 for all")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    infini_train::Run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "load_model: {}\n", error.what());
    return 2;
  }
  return 0;
}
