#include "infini_train/data/batch_source.h"

#include <fmt/format.h>

#include "infini_train/core/error.h"

namespace infini_train {

void BatchGeometry::Check() const {
  // 2^20 sequences, tokens and ranks keep every product below 2^63.
  constexpr int64_t kMost = int64_t{1} << 20;
  const auto in_range = [](int64_t value) { return value >= 1 && value <= kMost; };
  if (!in_range(batch_size) || !in_range(sequence_length) || !in_range(world_size)) {
    throw Error(
        fmt::format("expected batch size, sequence length and number of ranks from 1 to {}, found "
                    "{}, {} and {}",
                    kMost, batch_size, sequence_length, world_size));
  }
  if (rank < 0 || rank >= world_size) {
    throw Error(fmt::format("expected a rank from 0 to {}, found {}", world_size - 1, rank));
  }
}

TokenBatch TokenBatch::Empty(const BatchGeometry& geometry, int64_t epoch, int64_t step) {
  TokenBatch batch;
  batch.batch_size = geometry.batch_size;
  batch.sequence_length = geometry.sequence_length;
  batch.epoch = epoch;
  batch.step = step;
  const auto count = static_cast<size_t>(geometry.batch_size * geometry.sequence_length);
  batch.inputs.assign(count, 0);
  batch.targets.assign(count, kIgnore);
  return batch;
}

BatchSource::~BatchSource() = default;

}  // namespace infini_train
