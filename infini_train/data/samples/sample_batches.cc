#include "infini_train/data/samples/sample_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/permutation.h"

namespace infini_train {
namespace {

using Json = nlohmann::json;

PackedRows MakeRows(const SampleDataset& dataset, int64_t sequence_length, bool packing) {
  std::vector<int64_t> lengths(static_cast<size_t>(dataset.size()));
  for (int64_t i = 0; i < dataset.size(); ++i)
    lengths[static_cast<size_t>(i)] = dataset[i].num_inputs();
  return packing ? PackBestFit(lengths, sequence_length) : OneInEachRow(lengths, sequence_length);
}

// Writes a sample's inputs and targets to positions from `at` on.
void Put(const Sample& sample, size_t at, TokenBatch& batch) {
  const auto count = static_cast<size_t>(sample.num_inputs());
  std::copy_n(sample.tokens.begin(), count, batch.inputs.begin() + static_cast<ptrdiff_t>(at));
  const auto first = static_cast<size_t>(sample.first_target);
  std::copy(sample.tokens.begin() + static_cast<ptrdiff_t>(first), sample.tokens.end(),
            batch.targets.begin() + static_cast<ptrdiff_t>(at + first - 1));
}

}  // namespace

SampleRows::SampleRows(std::shared_ptr<const SampleDataset> dataset, int64_t sequence_length,
                       bool packing)
    : dataset_(std::move(dataset)),
      rows_(MakeRows(*dataset_, sequence_length, packing)),
      sequence_length_(sequence_length),
      packing_(packing) {
  for (int64_t row = 0; row < rows_.size(); ++row)
    most_samples_ = std::max(most_samples_, static_cast<int64_t>(rows_[row].size()));
}

SampleBatches::SampleBatches(std::shared_ptr<const SampleRows> rows,
                             const SampleBatchOptions& options)
    : rows_(std::move(rows)),
      geometry_{options.batch_size, rows_->sequence_length(), options.rank, options.world_size},
      batches_together_(options.batches_together),
      shuffle_(options.shuffle),
      seed_(options.seed) {
  geometry_.Check();
  if (batches_together_ < 1) {
    throw Error(fmt::format("expected 1 or more batches together, found {}", batches_together_));
  }
}

int64_t SampleBatches::steps_per_epoch() const {
  const int64_t together = geometry_.sequences_per_step() * batches_together_;
  return (rows_->rows().size() + together - 1) / together * batches_together_;
}

TokenBatch SampleBatches::Make(int64_t epoch, int64_t step) const {
  TokenBatch batch = TokenBatch::Empty(geometry_, epoch, step);
  const int64_t rows = rows_->rows().size();
  const Permutation permutation(static_cast<uint64_t>(rows), seed_ + static_cast<uint64_t>(epoch));
  const int64_t first = step * geometry_.sequences_per_step();
  const int64_t end = std::min(first + geometry_.sequences_per_step(), rows);
  const int64_t own = first + geometry_.rank * geometry_.batch_size;
  if (rows_->packing()) {
    batch.sample_lengths.reserve(static_cast<size_t>(geometry_.batch_size * rows_->most_samples()));
  }
  if (!rows_->packing()) batch.row_lengths.assign(static_cast<size_t>(geometry_.batch_size), 0);
  size_t next = 0;  // position behind the last packed sample
  for (int64_t place = first; place < end; ++place) {
    const int64_t row =
        shuffle_ ? static_cast<int64_t>(permutation(static_cast<uint64_t>(place))) : place;
    const bool is_own = place >= own && place < own + geometry_.batch_size;
    for (const int64_t i : rows_->rows()[row]) {
      const Sample sample = rows_->dataset()[i];
      (is_own ? batch.num_targets : batch.num_targets_of_others) += sample.num_targets();
      if (!is_own) continue;
      if (rows_->packing()) {
        Put(sample, next, batch);
        next += static_cast<size_t>(sample.num_inputs());
        batch.sample_lengths.push_back(sample.num_inputs());
      } else {
        Put(sample, static_cast<size_t>((place - own) * geometry_.sequence_length), batch);
        batch.row_lengths[static_cast<size_t>(place - own)] = sample.num_inputs();
      }
    }
  }
  if (rows_->packing()) {
    batch.sample_lengths.resize(static_cast<size_t>(geometry_.batch_size * rows_->most_samples()),
                                0);
  }
  return batch;
}

std::string SampleBatches::Identity() const {
  const SampleDataset& dataset = rows_->dataset();
  return Json{{"shuffle", shuffle_},
              {"seed", shuffle_ ? seed_ : 0},
              {"sequence_length", geometry_.sequence_length},
              {"packing", rows_->packing()},
              {"num_samples", dataset.size()},
              {"num_tokens", dataset.counts().tokens},
              {"data", fmt::format("{:016x}", dataset.fingerprint())}}
      .dump();
}

}  // namespace infini_train
