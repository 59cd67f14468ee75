#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/data/batch_source.h"
#include "infini_train/data/samples/sample_batches.h"
#include "infini_train/data/token_dataset.h"
#include "infini_train/data/tokenizer.h"

namespace infini_train::trainer {

/// What to train or evaluate on: token files, or JSON lines and how they become samples.
struct InputDataOptions {
  std::vector<std::string> bin;
  std::vector<std::string> jsonl;
  /// Of the two, for errors.
  std::string bin_flag = "input_bin";
  std::string jsonl_flag = "input_jsonl";
  std::int64_t sequence_length = 64;
  /// Without packing: rows as long as the longest sample, not as a sequence.
  bool shortest_rows = false;
  bool packing = false;
  std::string long_records = "truncate";
  std::int64_t vocab_size = 0;
  std::int64_t num_threads = 0;
};

/// Throws Error naming the flag unless there is data of one kind.
void CheckInputData(const InputDataOptions& options);

/// Data that was opened, or tokenized, once, for the batches of all ranks.
class InputData {
 public:
  /// Throws Error as CheckInputData, and for JSON lines without a tokenizer.
  InputData(const InputDataOptions& options, const Tokenizer* tokenizer);

  /// Training batches of a rank, of which an optimizer step takes `accumulation_steps`.
  std::shared_ptr<const BatchSource> TrainingBatches(const BatchGeometry& geometry,
                                                     std::int64_t accumulation_steps, bool shuffle,
                                                     std::uint64_t seed) const;
  /// A rank's part of batches that cover the data once in an epoch. Rows are as long as
  /// sequence_length(), whatever the geometry says.
  std::shared_ptr<const BatchSource> Coverage(BatchGeometry geometry) const;
  std::int64_t sequence_length() const { return sequence_length_; }

  /// "1000 training tokens in 2 files", with `kind` for "training".
  std::string Describe(const std::string& kind) const;
  /// What became of records that are not as they should be; empty if all are.
  std::string Warning() const;

 private:
  std::int64_t sequence_length_;
  std::int64_t most_tokens_;  ///< of a sample
  std::int64_t vocab_size_;
  std::string first_input_;
  std::shared_ptr<const TokenDataset> tokens_;  ///< or
  std::shared_ptr<const SampleRows> samples_;
};

/// Where the tokenizer of data may lie: the folders of its files.
std::vector<std::string> FoldersOf(const std::vector<std::string>& inputs);

}  // namespace infini_train::trainer
