#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "infini_train/core/file.h"
#include "infini_train/models/model.h"
#include "infini_train/trainer/options.h"
#include "infini_train/trainer/trainer.h"
#include "tests/data/token_files.h"

namespace infini_train::trainer {

inline constexpr std::int64_t kTinyVocabulary = 64;
inline constexpr std::int64_t kTinyPositions = 16;

inline models::ModelConfig TinyConfig() {
  models::ModelConfig config = models::FindPreset("gpt2-nano")->config;
  config.bos_token_id = kTinyVocabulary - 1;
  config.eos_token_ids = {kTinyVocabulary - 1};
  nn::TransformerConfig& t = config.transformer;
  t.vocab_size = kTinyVocabulary;
  t.max_position_embeddings = kTinyPositions;
  t.hidden_size = 16;
  t.num_hidden_layers = 2;
  t.num_attention_heads = t.num_key_value_heads = 2;
  t.head_dim = 8;
  t.intermediate_size = 32;
  return config;
}

/// A Mixtral of these sizes.
inline models::ModelConfig TinyConfigWithExperts() {
  models::ModelConfig config = models::FindPreset("mixtral-nano")->config;
  config.bos_token_id = kTinyVocabulary - 1;
  config.eos_token_ids = {kTinyVocabulary - 1};
  nn::TransformerConfig& t = config.transformer;
  t.vocab_size = kTinyVocabulary;
  t.max_position_embeddings = kTinyPositions;
  t.hidden_size = 16;
  t.num_hidden_layers = 2;
  t.num_attention_heads = 2;
  t.num_key_value_heads = 1;
  t.head_dim = 8;
  t.intermediate_size = 12;
  t.num_local_experts = 4;
  t.router_aux_loss_coef = 0.1;
  return config;
}

/// A folder with tiny models ("start", "experts") and token files ("train.bin", "val.bin") to train
/// them on.
class TinyRun {
 public:
  TinyRun() {
    models::SaveModel(models::CreateModel(TinyConfig(), 7), folder_ / "start");
    models::SaveModel(models::CreateModel(TinyConfigWithExperts(), 7), folder_ / "experts");
    test::WriteShard16(folder_ / "train.bin", 60);
    test::WriteShard16(folder_ / "val.bin", 40);
    // All files count upwards, so the next token is easy to learn.
    for (int i = 0; i < 5; ++i)
      test::WriteShard16(folder_ / ("train_" + std::to_string(i) + ".bin"), 57, 5);
  }

  std::string operator/(const std::string& name) const { return folder_ / name; }

  TrainOptions Options() const {
    TrainOptions options;
    options.model = folder_ / "start";
    options.input_bin = {folder_ / "train*.bin"};
    options.batch_size = 2;
    options.sequence_length = 8;
    options.num_iteration = 4;
    options.learning_rate = 1e-2;
    options.num_threads = 1;
    options.device = "cpu";
    return options;
  }

  /// The same as arguments of `infini-train train`.
  std::vector<std::string> Arguments() const {
    return {"--model",           folder_ / "start",
            "--input_bin",       folder_ / "train*.bin",
            "--batch_size",      "2",
            "--sequence_length", "8",
            "--num_iteration",   "4",
            "--learning_rate",   "1e-2",
            "--num_threads",     "1",
            "--device",          "cpu"};
  }

 private:
  test::TemporaryFolder folder_;
};

struct Outcome {
  int status = 0;
  std::string output;
};

/// Trains in this process.
inline Outcome RunTrain(const TrainOptions& options) {
  std::FILE* out = std::tmpfile();
  Outcome outcome;
  try {
    outcome.status = Train(options, out);
  } catch (...) {
    std::fclose(out);
    throw;
  }
  std::rewind(out);
  for (int c; (c = std::fgetc(out)) != EOF;)
    outcome.output += static_cast<char>(c);
  std::fclose(out);
  return outcome;
}

inline constexpr char kWeights[] = "/model.safetensors";
inline constexpr char kOptimizer[] = "/training/optimizer.safetensors";
inline constexpr char kFp8Scales[] = "/training/fp8.safetensors";
inline constexpr char kState[] = "/training/state.json";

inline std::string Checkpoint(const std::string& root, int step) {
  return root + "/checkpoint_step_" + std::string(step < 10 ? "00000" : "0000") +
         std::to_string(step);
}

inline void ExpectSameCheckpoint(const std::string& a, const std::string& b) {
  for (const char* file : {kWeights, kOptimizer, kState}) {
    EXPECT_TRUE(ReadFile(a + file) == ReadFile(b + file)) << file << " of " << a << " and " << b;
  }
}

/// Each parameter of two checkpoints by its Euclidean norm.
inline void ExpectCloseWeights(const std::string& a, const std::string& b, double tolerance) {
  const NamedTensors first = models::LoadModel(a).module->NamedParameters();
  const NamedTensors second = models::LoadModel(b).module->NamedParameters();
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::vector<float> x = first[i].second.ToVector<float>();
    const std::vector<float> y = second[i].second.ToVector<float>();
    double norm = 0.0;
    double difference = 0.0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      norm += double{x[k]} * x[k];
      difference += (double{x[k]} - y[k]) * (double{x[k]} - y[k]);
    }
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm) + 1e-9) << first[i].first;
  }
}

/// The lines of a metrics file without what depends on the clock and on earlier tests.
inline std::vector<nlohmann::json> ReadMetrics(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(ReadFile(path));
  for (std::string line; std::getline(text, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    for (const char* key :
         {"tokens_per_second", "milliseconds", "peak_used_bytes", "peak_reserved_bytes"}) {
      json.erase(key);
    }
    lines.push_back(json);
  }
  return lines;
}

}  // namespace infini_train::trainer
