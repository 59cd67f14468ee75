#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/data/batch_source.h"
#include "infini_train/data/permutation.h"
#include "infini_train/data/token_shard.h"

namespace infini_train {

/// Token shards in a fixed order. The total may exceed 2^31 tokens. Safe to read from several
/// threads.
class INFINI_TRAIN_API TokenDataset {
 public:
  /// Opens and validates every shard that `patterns` name (see ExpandFiles).
  explicit TokenDataset(const std::vector<std::string>& patterns);

  const std::vector<TokenShard>& shards() const { return shards_; }
  int64_t num_tokens() const { return num_tokens_; }

  /// Reads a training window: `inputs` are tokens [begin, begin + inputs.size()) of a shard and
  /// `targets`, of the same length, the tokens one further. Throws Error, naming the file and the
  /// position, if a token is not below `vocab_size`; 0 accepts every token.
  void ReadWindow(size_t shard, int64_t begin, std::span<int64_t> inputs,
                  std::span<int64_t> targets, int64_t vocab_size) const;

 private:
  std::vector<TokenShard> shards_;
  int64_t num_tokens_ = 0;
};

/// Where a training window starts.
struct WindowPosition {
  size_t shard = 0;
  int64_t begin = 0;
};

/// The order in which training visits a dataset: which window is row `row` of a rank's batch at a
/// step. All ranks have the same number of steps and change shard together.
///
/// In file order (llm.c): shard by shard; a shard of n tokens gives floor((n - 1) / (ranks * B *
/// T)) steps, its tail is dropped, and step s of rank r starts at token (s * ranks + r) * B * T.
///
/// Shuffled: a shard of n tokens gives floor((n - 1) / T) windows; each epoch visits the windows of
/// all shards in a new permutation, of which the last (windows mod (ranks * B)) are left out.
class INFINI_TRAIN_API BatchOrder {
 public:
  /// Throws Error if the dataset does not give a single step, or the geometry is not positive.
  BatchOrder(const TokenDataset& dataset, const BatchGeometry& geometry, bool shuffle,
             uint64_t seed);

  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  WindowPosition operator()(int64_t epoch, int64_t step, int64_t row) const;

 private:
  BatchGeometry geometry_;
  bool shuffle_;
  uint64_t seed_;
  int64_t steps_per_epoch_ = 0;
  /// Steps (in file order) or windows (shuffled) of the shards before each one, and of all.
  std::vector<int64_t> first_of_shard_;
};

}  // namespace infini_train
