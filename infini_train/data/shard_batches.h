#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/data/batch_source.h"
#include "infini_train/data/token_dataset.h"

namespace infini_train {

struct ShardBatchOptions {
  BatchGeometry geometry;
  bool shuffle = false;    ///< visit the windows of each epoch in a new order (see BatchOrder)
  uint64_t seed = 0;       ///< of the shuffled order
  int64_t vocab_size = 0;  ///< ids from here on are an error; 0 accepts every id
};

/// Training windows of token shards, in the order of BatchOrder.
class INFINI_TRAIN_API ShardBatches : public BatchSource {
 public:
  /// Throws Error if the dataset does not give a single batch.
  ShardBatches(std::shared_ptr<const TokenDataset> dataset, const ShardBatchOptions& options);

  int64_t steps_per_epoch() const override { return order_.steps_per_epoch(); }
  /// Throws Error if the batch holds a token outside the vocabulary.
  TokenBatch Make(int64_t epoch, int64_t step) const override;
  std::string Identity() const override;
  int64_t sequences_per_step() const override { return options_.geometry.sequences_per_step(); }
  bool orders_sequences() const override { return options_.shuffle; }
  bool targets_vary() const override { return false; }

 private:
  std::shared_ptr<const TokenDataset> dataset_;
  ShardBatchOptions options_;
  BatchOrder order_;
};

/// Covers token shards exactly once, for validation loss and perplexity: every token but the first
/// of each shard is a target once. Windows of sequence_length tokens are taken in file order; rows
/// that a shard's tail or the last batch leaves unfilled have input 0 and target kIgnore.
class INFINI_TRAIN_API ShardCoverage : public BatchSource {
 public:
  /// Throws Error if the dataset has no shard with at least two tokens.
  ShardCoverage(std::shared_ptr<const TokenDataset> dataset, const BatchGeometry& geometry,
                int64_t vocab_size = 0);

  /// Targets of all ranks in all batches.
  int64_t num_targets() const { return num_targets_; }

  int64_t steps_per_epoch() const override { return num_batches_; }
  TokenBatch Make(int64_t epoch, int64_t step) const override;
  std::string Identity() const override;
  int64_t sequences_per_step() const override { return geometry_.sequences_per_step(); }
  bool orders_sequences() const override { return true; }
  bool targets_vary() const override { return true; }

 private:
  struct Window {
    size_t shard;
    int64_t begin, count;
  };
  /// A window of the dataset; none has index windows or more.
  Window At(int64_t window) const;

  std::shared_ptr<const TokenDataset> dataset_;
  BatchGeometry geometry_;
  int64_t vocab_size_;
  std::vector<int64_t> first_window_of_shard_;
  int64_t num_batches_ = 0;
  int64_t num_targets_ = 0;
};

}  // namespace infini_train
