// Generation token by token, beside the time that reading the weights takes: benchmarks/README.md.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/threads.h"
#include "infini_train/models/model.h"
#include "infini_train/nn/key_value_cache.h"
#include "infini_train/nn/token_graph.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/trainer/setup.h"

namespace infini_train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpTokens = 8;

struct Options {
  std::string model = "gpt2";
  std::string device = "cpu";
  std::string dtype = "bfloat16";
  std::int64_t batch_size = 1;
  std::int64_t prompt_length = 128;
  int tokens = 256;
  int rounds = 5;
  int threads = 0;
};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Bytes a second that a copy of memory much larger than caches moves, read and written.
double CopyBandwidth(Device device) {
  const std::int64_t bytes = device.is_cpu() ? std::int64_t{1} << 28 : std::int64_t{1} << 30;
  Tensor x = Zeros({bytes / 4}, DataType::kFloat32, device);
  Tensor out = Tensor::EmptyLike(x);
  double best = 0;
  for (int round = 0; round < 8; ++round) {
    Synchronize(device);
    const Clock::time_point begin = Clock::now();
    Call<op::Copy>(out, x);
    Synchronize(device);
    best = std::max(best, 2.0 * static_cast<double>(bytes) / SecondsSince(begin));
  }
  return best;
}

/// Bytes of the parameters that a token reads: all but the rows of a table of its own that are not
/// its.
double WeightBytes(const nn::Transformer& model) {
  double bytes = 0;
  for (const auto& [name, parameter] : model.NamedParameters()) {
    const bool is_table =
        name == "wpe.weight" || (name == "wte.weight" && !parameter.IsSameAs(model.head_weight()));
    if (is_table) continue;
    bytes +=
        static_cast<double>(parameter.numel()) * static_cast<double>(SizeOf(parameter.dtype()));
  }
  return bytes;
}

void Run(const Options& o) {
  if (o.threads > 0) SetNumThreads(o.threads);
  const Device device = trainer::ResolveDevice(o.device);
  const DataType dtype = ParseDataType(o.dtype);
  models::ModelConfig config;
  if (const models::Preset* preset = models::FindPreset(o.model)) {
    config = preset->config;
  } else {
    config = models::LoadModelConfig(o.model);
  }
  nn::TransformerConfig& t = config.transformer;
  const std::int64_t positions = o.prompt_length + o.tokens + kWarmUpTokens;
  t.max_position_embeddings = std::max(t.max_position_embeddings, positions);
  const models::Model model = models::CreateModel(config, 0, {device, dtype});
  model.module->Train(false);
  const NoGrad no_grad;
  const Tensor prompt =
      RandomInt({o.batch_size, o.prompt_length}, 0, t.vocab_size, DataType::kInt64, device);
  std::vector<double> milliseconds;
  double prompt_ms = 0;
  bool captured = false;
  for (int round = 0; round < o.rounds; ++round) {
    nn::KeyValueCache cache(t.num_hidden_layers, positions, o.batch_size);
    cache.MakeRoom(positions);
    Synchronize(device);
    Clock::time_point begin = Clock::now();
    const Tensor logits = (*model.module)(prompt, {.cache = &cache});
    nn::TokenGraph steps(*model.module, cache,
                         ArgMax(Contiguous(Slice(logits, 1, o.prompt_length - 1)), 2));
    Synchronize(device);
    prompt_ms = SecondsSince(begin) * 1e3;
    for (int i = 0; i < kWarmUpTokens; ++i)
      steps.Step();
    Synchronize(device);
    begin = Clock::now();
    for (int i = 0; i < o.tokens; ++i)
      steps.Step();
    Synchronize(device);
    milliseconds.push_back(SecondsSince(begin) * 1e3 / o.tokens);
    captured = steps.captured();
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const double token_ms = milliseconds[milliseconds.size() / 2];
  const double element = static_cast<double>(SizeOf(dtype));
  const double held = static_cast<double>(o.prompt_length + kWarmUpTokens) + o.tokens / 2.0;
  const double cache_bytes =
      2 * element * held *
      static_cast<double>(o.batch_size * t.num_hidden_layers * t.num_key_value_heads * t.head_dim);
  const double bytes = WeightBytes(*model.module) + cache_bytes;
  const double bandwidth = CopyBandwidth(device);
  nlohmann::ordered_json json;
  json["tokens_per_second"] = static_cast<double>(o.batch_size) / token_ms * 1e3;
  json["token_ms"] = token_ms;
  json["prompt_ms"] = prompt_ms;
  json["bytes_per_token"] = bytes;
  json["copy_bytes_per_second"] = bandwidth;
  json["of_the_bound"] = bytes / bandwidth / (token_ms * 1e-3);
  json["captured"] = captured;
  fmt::print("{}\n", json.dump());
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
  infini_train::Options options;
  CLI::App app("Times generation token by token and prints one JSON line.");
  app.add_option("--model", options.model, "preset, or folder with a config.json");
  app.add_option("--device", options.device);
  app.add_option("--dtype", options.dtype, "of the parameters");
  app.add_option("--batch_size", options.batch_size)->check(CLI::PositiveNumber);
  app.add_option("--prompt_length", options.prompt_length)->check(CLI::PositiveNumber);
  app.add_option("--tokens", options.tokens, "measured, after 8 others")
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "the median counts")->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "0 for all")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    infini_train::Run(options);
  } catch (const infini_train::Error& error) {
    fmt::print(stderr, "decode: {}\n", error.what());
    return 2;
  }
  return 0;
}
