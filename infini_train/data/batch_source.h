#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train {

/// How an epoch is cut into batches.
struct INFINI_TRAIN_API BatchGeometry {
  int64_t batch_size = 4;        ///< sequences per batch and rank
  int64_t sequence_length = 64;  ///< tokens per sequence
  int64_t rank = 0;              ///< which data-parallel replica this is
  int64_t world_size = 1;        ///< number of data-parallel replicas

  /// Throws Error unless sizes are positive and the rank is one of the world's.
  void Check() const;

  int64_t sequences_per_step() const { return batch_size * world_size; }
  int64_t tokens_per_step() const { return sequences_per_step() * sequence_length; }
};

/// Sequences for one step of one rank: row-major [batch_size, sequence_length] token ids on the
/// host.
struct TokenBatch {
  /// Target of a position that does not count in the loss.
  static constexpr int64_t kIgnore = -100;

  int64_t batch_size = 0;
  int64_t sequence_length = 0;
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;  ///< the token that follows each input, or kIgnore
  /// Packed samples: their lengths, of samples one after another in all positions, as
  /// nn::PackSamples takes them; always as many, so that some may be 0. Empty: each row is on its
  /// own.
  std::vector<int64_t> sample_lengths;
  /// The first inputs of each row that are no padding; empty: all are none.
  std::vector<int64_t> row_lengths;
  int64_t num_targets = 0;            ///< targets other than kIgnore
  int64_t num_targets_of_others = 0;  ///< those of the other ranks' batches of this step
  int64_t epoch = 0;                  ///< passes over the data completed before this batch
  int64_t step = 0;                   ///< index of the batch within its epoch

  /// A batch of inputs 0 whose targets do not count.
  static TokenBatch Empty(const BatchGeometry& geometry, int64_t epoch, int64_t step);
};

/// Batches by their position: the same position gives the same batch. All ranks have as many.
///
/// Safe to call from several threads at once.
class INFINI_TRAIN_API BatchSource {
 public:
  virtual ~BatchSource();

  virtual int64_t steps_per_epoch() const = 0;
  /// The batch of a step, which is below steps_per_epoch(). Throws Error if the data is bad.
  virtual TokenBatch Make(int64_t epoch, int64_t step) const = 0;
  /// What must agree, beside the number of sequences in a step, for a position to mean the same
  /// batch: a JSON object.
  virtual std::string Identity() const = 0;
  virtual int64_t sequences_per_step() const = 0;
  /// Whether an epoch is one order of sequences, however many of them make a step.
  virtual bool orders_sequences() const = 0;
  /// Whether batches differ in the number of their targets.
  virtual bool targets_vary() const = 0;
};

}  // namespace infini_train
