#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "infini_train/core/api.h"
#include "infini_train/data/batch_source.h"
#include "infini_train/data/samples/packing.h"
#include "infini_train/data/samples/sample_dataset.h"

namespace infini_train {

/// Which samples a row has, for all ranks: each row one, or as many as fit (PackBestFit).
class INFINI_TRAIN_API SampleRows {
 public:
  /// Throws Error where a sample has more inputs than `sequence_length`.
  SampleRows(std::shared_ptr<const SampleDataset> dataset, int64_t sequence_length, bool packing);

  const SampleDataset& dataset() const { return *dataset_; }
  const PackedRows& rows() const { return rows_; }
  int64_t sequence_length() const { return sequence_length_; }
  bool packing() const { return packing_; }
  /// Of the samples in a row, the most.
  int64_t most_samples() const { return most_samples_; }

 private:
  std::shared_ptr<const SampleDataset> dataset_;
  PackedRows rows_;
  int64_t sequence_length_;
  bool packing_;
  int64_t most_samples_ = 0;
};

struct SampleBatchOptions {
  int64_t batch_size = 4;  ///< rows per batch and rank
  int64_t rank = 0;
  int64_t world_size = 1;
  /// An epoch has a multiple of as many batches: the micro-batches of an optimizer step, which then
  /// has rows of one epoch however it is split.
  int64_t batches_together = 1;
  bool shuffle = false;  ///< visit the rows of each epoch in a new order
  uint64_t seed = 0;     ///< of the shuffled order
};

/// Batches of samples to fine-tune on. Each epoch visits every row once, in an order that does not
/// depend on the number of ranks; the last batches are filled up with rows whose targets do not
/// count.
/// Without packing a sample lies at the start of its row; packed samples lie one after another in
/// all rows together, what is left behind the last. Unfilled positions have input 0 and target
/// kIgnore.
class INFINI_TRAIN_API SampleBatches : public BatchSource {
 public:
  SampleBatches(std::shared_ptr<const SampleRows> rows, const SampleBatchOptions& options);

  int64_t steps_per_epoch() const override;
  TokenBatch Make(int64_t epoch, int64_t step) const override;
  std::string Identity() const override;
  int64_t sequences_per_step() const override { return geometry_.sequences_per_step(); }
  bool orders_sequences() const override { return true; }
  bool targets_vary() const override { return true; }

 private:
  std::shared_ptr<const SampleRows> rows_;
  BatchGeometry geometry_;
  int64_t batches_together_;
  bool shuffle_;
  uint64_t seed_;
};

}  // namespace infini_train
