#include "infini_train/data/shard_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using Json = nlohmann::json;

std::span<int64_t> Row(std::vector<int64_t>& values, int64_t row, int64_t row_size, int64_t count) {
  return std::span(values).subspan(static_cast<size_t>(row * row_size), static_cast<size_t>(count));
}

}  // namespace

ShardBatches::ShardBatches(std::shared_ptr<const TokenDataset> dataset,
                           const ShardBatchOptions& options)
    : dataset_(std::move(dataset)),
      options_(options),
      order_(*dataset_, options.geometry, options.shuffle, options.seed) {}

TokenBatch ShardBatches::Make(int64_t epoch, int64_t step) const {
  const BatchGeometry& geometry = options_.geometry;
  const int64_t length = geometry.sequence_length;
  TokenBatch batch = TokenBatch::Empty(geometry, epoch, step);
  for (int64_t row = 0; row < geometry.batch_size; ++row) {
    const auto [shard, begin] = order_(epoch, step, row);
    dataset_->ReadWindow(shard, begin, Row(batch.inputs, row, length, length),
                         Row(batch.targets, row, length, length), options_.vocab_size);
  }
  batch.num_targets = geometry.batch_size * length;
  batch.num_targets_of_others = batch.num_targets * (geometry.world_size - 1);
  return batch;
}

std::string ShardBatches::Identity() const {
  return Json{{"shuffle", options_.shuffle},
              {"seed", options_.shuffle ? options_.seed : 0},
              {"sequence_length", options_.geometry.sequence_length},
              {"num_shards", dataset_->shards().size()},
              {"num_tokens", dataset_->num_tokens()}}
      .dump();
}

ShardCoverage::ShardCoverage(std::shared_ptr<const TokenDataset> dataset,
                             const BatchGeometry& geometry, int64_t vocab_size)
    : dataset_(std::move(dataset)), geometry_(geometry), vocab_size_(vocab_size) {
  geometry_.Check();
  int64_t windows = 0;
  for (const TokenShard& shard : dataset_->shards()) {
    const int64_t targets = std::max<int64_t>(shard.size() - 1, 0);
    first_window_of_shard_.push_back(windows);
    windows += (targets + geometry_.sequence_length - 1) / geometry_.sequence_length;
    num_targets_ += targets;
  }
  first_window_of_shard_.push_back(windows);
  if (windows == 0) {
    throw Error(fmt::format("{}: expected at least 2 tokens, found {}",
                            dataset_->shards().front().path(), dataset_->shards().front().size()));
  }
  const int64_t per_step = geometry_.sequences_per_step();
  num_batches_ = (windows + per_step - 1) / per_step;
}

ShardCoverage::Window ShardCoverage::At(int64_t window) const {
  const auto next =
      std::upper_bound(first_window_of_shard_.begin(), first_window_of_shard_.end(), window);
  const auto shard = static_cast<size_t>(next - first_window_of_shard_.begin() - 1);
  const int64_t length = geometry_.sequence_length;
  const int64_t begin = (window - first_window_of_shard_[shard]) * length;
  return {shard, begin, std::min(length, dataset_->shards()[shard].size() - 1 - begin)};
}

TokenBatch ShardCoverage::Make(int64_t epoch, int64_t step) const {
  const int64_t length = geometry_.sequence_length;
  TokenBatch batch = TokenBatch::Empty(geometry_, epoch, step);
  const int64_t first = step * geometry_.sequences_per_step();
  const int64_t end =
      std::min(first + geometry_.sequences_per_step(), first_window_of_shard_.back());
  for (int64_t window = first; window < end; ++window) {
    const auto [shard, begin, count] = At(window);
    const int64_t row = window - first - geometry_.rank * geometry_.batch_size;
    if (row < 0 || row >= geometry_.batch_size) {
      batch.num_targets_of_others += count;
      continue;
    }
    dataset_->ReadWindow(shard, begin, Row(batch.inputs, row, length, count),
                         Row(batch.targets, row, length, count), vocab_size_);
    batch.num_targets += count;
  }
  return batch;
}

std::string ShardCoverage::Identity() const {
  return Json{{"sequence_length", geometry_.sequence_length},
              {"num_shards", dataset_->shards().size()},
              {"num_tokens", dataset_->num_tokens()}}
      .dump();
}

}  // namespace infini_train
