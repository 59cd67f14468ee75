// Whether a device trains as the CPU does: the loss, every gradient and some training steps of a
// LLaMA of long sequences, with each of the device's attention kernels, deterministic and not, with
// and without recomputation, beside the CPU's in float32. Exit status 1 if they are too far apart.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/models/model.h"
#include "infini_train/ops/attention_kernel.h"
#include "infini_train/ops/kernel_library.h"
#include "infini_train/optim/optimizer.h"
#include "infini_train/trainer/setup.h"
#include "infini_train/trainer/step/step_runner.h"

namespace infini_train {
namespace {

using Recompute = nn::ActivationCheckpointing::Method;

constexpr double kLearningRate = 1e-3;
constexpr double kGradClip = 1.0;
/// Scores of about 2: attention that is neither even nor on one key, so that the gradients of
/// queries and keys are not lost beside those of values.
constexpr double kInitializerRange = 0.08;

struct Options {
  std::string device = "auto";
  std::int64_t batch_size = 3;
  std::int64_t sequence_length = 8192;
  std::int64_t vocab_size = 128256;
  std::int64_t hidden_size = 256;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t key_heads = 2;
  int steps = 4;
  double strictness = 1.0;
};

/// What may change no result by more than rounding.
struct Variant {
  std::optional<DataType> autocast;
  AttentionKernel attention = AttentionKernel::kAuto;
  bool deterministic = true;
  Recompute recompute = Recompute::kNone;

  std::string ToString() const {
    const char* const kernels[] = {"auto", "portable", "fused"};
    return fmt::format("{}, attention {}, {}, recompute {}", autocast ? "bfloat16" : "float32",
                       kernels[static_cast<int>(attention)],
                       deterministic ? "deterministic" : "not deterministic",
                       recompute == Recompute::kNone ? "none" : "selective");
  }
};

/// Largest relative differences from the CPU's float32.
struct Tolerance {
  double loss, gradient, scores, steps;
};
constexpr Tolerance kFloat32 = {1e-5, 1e-4, 1e-4, 1e-5};
/// The gradients of scores are differences of rounded numbers that are almost alike, the more so
/// the more keys there are; an error of a kernel is of the size of the gradient.
constexpr Tolerance kBFloat16 = {1e-2, 6e-2, 1e-1, 1e-2};

struct Gradient {
  std::string name;
  std::vector<float> values;
  bool of_scores = false;
};

struct Result {
  double loss = 0;
  std::vector<Gradient> gradients;
  std::vector<double> losses;  // of the training steps
};

models::ModelConfig MakeConfig(const Options& o) {
  models::ModelConfig config = models::FindPreset("llama3.2-1b")->config;
  nn::TransformerConfig& t = config.transformer;
  t.vocab_size = o.vocab_size;
  t.hidden_size = o.hidden_size;
  t.intermediate_size = 2 * o.hidden_size;
  t.num_hidden_layers = o.layers;
  t.num_attention_heads = o.heads;
  t.num_key_value_heads = o.key_heads;
  t.head_dim = o.hidden_size / o.heads;
  t.initializer_range = kInitializerRange;
  return config;
}

/// Two batches that take turns.
std::vector<TokenBatch> MakeBatches(const Options& o) {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<std::int64_t> token(0, o.vocab_size - 1);
  std::vector<TokenBatch> batches(2);
  for (TokenBatch& batch : batches) {
    batch.batch_size = o.batch_size;
    batch.sequence_length = o.sequence_length;
    batch.num_targets = o.batch_size * o.sequence_length;
    for (std::int64_t i = 0; i < batch.num_targets; ++i) {
      batch.inputs.push_back(token(random));
      batch.targets.push_back(token(random));
    }
  }
  return batches;
}

/// The gradient of a parameter, those of queries, keys and values apart: the last would hide the
/// others.
void AppendGradients(Result& result, const std::string& name, const Tensor& grad,
                     const nn::TransformerConfig& t) {
  const Tensor values = To(grad, Device());
  const auto append = [&](const std::string& part, std::int64_t begin, std::int64_t end,
                          bool of_scores) {
    result.gradients.push_back(
        {name + part, Slice(values, 0, begin, end).ToVector<float>(), of_scores});
  };
  if (!name.ends_with("c_attn.weight")) return append("", 0, values.size(0), false);
  const std::int64_t keys = t.num_attention_heads * t.head_dim;
  const std::int64_t ends = keys + t.num_key_value_heads * t.head_dim;
  append(" of queries", 0, keys, true);
  append(" of keys", keys, ends, true);
  append(" of values", ends, values.size(0), false);
}

class Comparison {
 public:
  explicit Comparison(const Options& options)
      : options_(options),
        config_(MakeConfig(options)),
        batches_(MakeBatches(options)),
        initial_(models::CreateModel(config_, 0)) {}

  Result Run(Device device, const Variant& variant) const {
    SetDeterministic(variant.deterministic);
    SetAttentionKernel(variant.attention);
    Result result;
    {
      const models::Model model = MakeModel(device, variant);
      const trainer::DeviceBatch batch = trainer::ToDevice(batches_[0], device);
      Tensor loss;
      {
        const Autocast autocast(variant.autocast);
        loss = model.module->Loss(batch.inputs, batch.targets,
                                  1.0 / static_cast<double>(batch.num_targets), batch.context());
      }
      Backward(loss);
      result.loss = loss.Item();
      const NoGrad no_grad;
      for (const auto& [name, parameter] : model.module->NamedParameters())
        AppendGradients(result, name, parameter.grad(), config_.transformer);
    }
    const models::Model model = MakeModel(device, variant);
    optim::AdamW optimizer(optim::DecayMatricesOnly(model.module->NamedParameters(), 0.1),
                           {0.9, 0.95, 1e-8});
    trainer::StepRunner runner(model, optimizer, {variant.autocast, kGradClip},
                               [](const std::string& text) { fmt::print("  {}\n", text); });
    for (int step = 0; step < options_.steps; ++step) {
      const TokenBatch& batch = batches_[static_cast<std::size_t>(step) % batches_.size()];
      result.losses.push_back(runner.Run({&batch, 1}, kLearningRate).loss);
    }
    return result;
  }

 private:
  models::Model MakeModel(Device device, const Variant& variant) const {
    models::Model model = models::CreateModel(config_, 0, {device, DataType::kFloat32});
    model.module->LoadStateDict(initial_.module->StateDict());
    model.module->set_activation_checkpointing({variant.recompute, 1});
    return model;
  }

  const Options& options_;
  const models::ModelConfig config_;
  const std::vector<TokenBatch> batches_;
  const models::Model initial_;  // on the CPU: devices start from the same bits
};

/// Infinity where one of them is no number.
double Apart(double found, double expected) {
  const double apart = std::abs(found - expected) / std::abs(expected);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

/// |found - expected| over |expected|, of vectors.
double Apart(const std::vector<float>& found, const std::vector<float>& expected) {
  double difference = 0, magnitude = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double wanted = expected[i], away = found[i] - wanted;
    difference += away * away;
    magnitude += wanted * wanted;
  }
  const double apart = std::sqrt(difference / magnitude);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

double Apart(const std::vector<double>& found, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, Apart(found[i], expected[i]));
  return worst;
}

/// The gradient that is farthest apart, of those of scores or of the others.
struct Farthest {
  double apart = 0;
  std::string name;

  Farthest(const Result& found, const Result& expected, bool of_scores) {
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      const Gradient& wanted = expected.gradients[i];
      if (wanted.of_scores != of_scores) continue;
      const double difference = Apart(found.gradients[i].values, wanted.values);
      if (!name.empty() && difference <= apart) continue;
      apart = difference;
      name = wanted.name;
    }
  }
};

/// Prints how far apart they are; whether that is near enough.
bool Report(const Variant& variant, const Result& found, const Result& expected,
            double strictness) {
  const Tolerance& most = variant.autocast ? kBFloat16 : kFloat32;
  const double loss = Apart(found.loss, expected.loss);
  const double steps = Apart(found.losses, expected.losses);
  const Farthest scores(found, expected, true), others(found, expected, false);
  const bool passed = loss * strictness <= most.loss && steps * strictness <= most.steps &&
                      scores.apart * strictness <= most.scores &&
                      others.apart * strictness <= most.gradient;
  fmt::print("{}: {}\n  loss {:.1e}, gradients {:.1e} ({}) and {:.1e} ({}), steps {:.1e}\n",
             passed ? "ok" : "TOO FAR", variant.ToString(), loss, scores.apart, scores.name,
             others.apart, others.name, steps);
  std::fflush(stdout);
  return passed;
}

int Run(const Options& o) {
  const Device device = trainer::ResolveDevice(o.device);
  const Comparison comparison(o);
  const Result expected = comparison.Run(Device(), {});
  fmt::print(
      "{} sequences of {} tokens of {}; the CPU's loss in float32 is {:.5f}, behind {} steps "
      "{:.5f}\n",
      o.batch_size, o.sequence_length, o.vocab_size, expected.loss, o.steps,
      expected.losses.empty() ? expected.loss : expected.losses.back());
  std::vector<AttentionKernel> kernels = {AttentionKernel::kPortable};
  if (!KernelLibrary(device.type(), OpId::kAttention).empty())
    kernels.push_back(AttentionKernel::kFused);
  bool passed = true;
  const auto check = [&](const Variant& variant) {
    passed = Report(variant, comparison.Run(device, variant), expected, o.strictness) && passed;
  };
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective})
    check({std::nullopt, AttentionKernel::kAuto, true, recompute});
  for (const AttentionKernel kernel : kernels) {
    for (const bool deterministic : {true, false}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective})
        check({DataType::kBFloat16, kernel, deterministic, recompute});
    }
  }
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
  infini_train::Options options;
  CLI::App app("Compares training on a device with training on the CPU.");
  app.add_option("--device", options.device);
  app.add_option("--batch_size", options.batch_size)->check(CLI::PositiveNumber);
  app.add_option("--sequence_length", options.sequence_length)->check(CLI::PositiveNumber);
  app.add_option("--vocab_size", options.vocab_size)->check(CLI::PositiveNumber);
  app.add_option("--hidden_size", options.hidden_size)->check(CLI::PositiveNumber);
  app.add_option("--layers", options.layers)->check(CLI::PositiveNumber);
  app.add_option("--heads", options.heads)->check(CLI::PositiveNumber);
  app.add_option("--key_heads", options.key_heads)->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "training steps")->check(CLI::NonNegativeNumber);
  app.add_option("--strictness", options.strictness, "tolerances are divided by this")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    return infini_train::Run(options);
  } catch (const infini_train::Error& error) {
    fmt::print(stderr, "compare_devices: {}\n", error.what());
    return 2;
  }
}
