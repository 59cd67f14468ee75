#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

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

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

/// A folder with a tiny model ("start") and token files ("train.bin", "val.bin") to train it on.
class TinyRun {
 public:
  TinyRun() {
    models::SaveModel(models::CreateModel(TinyConfig(), 7), folder_ / "start");
    testing::WriteShard16(folder_ / "train.bin", 60);
    testing::WriteShard16(folder_ / "val.bin", 40);
    // All files count upwards, so the next token is easy to learn.
    for (int i = 0; i < 5; ++i)
      testing::WriteShard16(folder_ / ("train_" + std::to_string(i) + ".bin"), 57, 5);
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
  testing::TemporaryFolder folder_;
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

/// The lines of a metrics file without what depends on the clock and on earlier tests.
inline std::vector<nlohmann::json> ReadMetrics(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(ReadText(path));
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
