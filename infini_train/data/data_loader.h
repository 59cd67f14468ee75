#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/data/token_dataset.h"

namespace infini_train {

/// Sequences for one step of one rank: row-major [batch_size, sequence_length] token ids on the
/// host.
struct TokenBatch {
  /// Target of a position that does not count in the loss.
  static constexpr int64_t kIgnore = -100;

  int64_t batch_size = 0;
  int64_t sequence_length = 0;
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;  ///< the token that follows each input, or kIgnore
  int64_t num_targets = 0;       ///< targets other than kIgnore
  int64_t epoch = 0;             ///< passes over the data completed before this batch
  int64_t step = 0;              ///< index of the batch within its epoch
};

struct DataLoaderOptions {
  BatchGeometry geometry;
  bool shuffle = false;    ///< visit the windows of each epoch in a new order (see BatchOrder)
  uint64_t seed = 0;       ///< of the shuffled order
  int64_t vocab_size = 0;  ///< ids from here on are an error; 0 accepts every id
  int prefetch = 4;        ///< batches that a background thread prepares ahead; 0 for no thread
};

/// Endless training batches over a dataset, epoch after epoch, with a position that can be saved:
/// a loader that loads the state continues with the very next batch.
///
/// Not safe to call from several threads at once.
class INFINI_TRAIN_API DataLoader {
 public:
  /// Throws Error if the dataset does not give a single batch.
  DataLoader(std::shared_ptr<const TokenDataset> dataset, const DataLoaderOptions& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  const DataLoaderOptions& options() const;
  int64_t steps_per_epoch() const;

  /// The next batch. Throws Error if it holds a token outside the vocabulary.
  TokenBatch Next();

  /// The position after the last batch that Next() returned, as a JSON object. It is the same on
  /// every rank.
  std::string State() const;
  /// Continues after the batch at which `state` was taken. Throws Error, listing the differences,
  /// if the state belongs to other data or another order, or to another number of sequences per
  /// step: shuffled data goes on with that as well, where a step of this loader begins there.
  void LoadState(const std::string& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Covers a dataset exactly once, for validation loss and perplexity: every token but the first of
/// each shard is a target once. Windows of sequence_length tokens are taken in file order; rows
/// that a shard's tail or the last batch leaves unfilled have input 0 and target kIgnore. All ranks
/// have the same number of batches.
class INFINI_TRAIN_API EvaluationBatches {
 public:
  /// Throws Error if the dataset has no shard with at least two tokens.
  EvaluationBatches(std::shared_ptr<const TokenDataset> dataset, const BatchGeometry& geometry,
                    int64_t vocab_size = 0);

  int64_t num_batches() const { return num_batches_; }
  /// Targets of all ranks in all batches.
  int64_t num_targets() const { return num_targets_; }

  /// The next batch, or nothing after the last.
  std::optional<TokenBatch> Next();
  /// Starts again at the first batch.
  void Reset() { next_ = 0; }

 private:
  std::shared_ptr<const TokenDataset> dataset_;
  BatchGeometry geometry_;
  int64_t vocab_size_;
  std::vector<int64_t> first_window_of_shard_;
  int64_t num_batches_ = 0;
  int64_t num_targets_ = 0;
  int64_t next_ = 0;
};

}  // namespace infini_train
