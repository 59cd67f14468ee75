#include "infini_train/data/token_dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "infini_train/core/error.h"
#include "infini_train/data/input_files.h"

namespace infini_train {
namespace {

[[noreturn]] void ThrowTooShort(const TokenDataset& dataset, const BatchGeometry& geometry,
                                bool shuffle) {
  const auto& shards = dataset.shards();
  const auto longest =
      std::max_element(shards.begin(), shards.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  throw Error(fmt::format(
      "{}: expected at least {} tokens for one step ({} ranks x {} sequences x {} tokens, and one "
      "more), found {}{}",
      longest->path(), geometry.tokens_per_step() + 1, geometry.world_size, geometry.batch_size,
      geometry.sequence_length, longest->size(),
      shards.size() == 1 ? ""
      : shuffle          ? fmt::format(" in the longest of {} files", shards.size())
                         : fmt::format(" in the longest of {} files, and no step spans two files",
                                       shards.size())));
}

}  // namespace

TokenDataset::TokenDataset(const std::vector<std::string>& patterns) {
  for (const std::string& file : ExpandFiles(patterns, "token files")) {
    num_tokens_ += shards_.emplace_back(file).size();
  }
}

void TokenDataset::ReadWindow(size_t shard, int64_t begin, std::span<int64_t> inputs,
                              std::span<int64_t> targets, int64_t vocab_size) const {
  const TokenShard& file = shards_[shard];
  const int64_t largest = std::max(file.Read(begin, inputs), file.Read(begin + 1, targets));
  if (vocab_size == 0 || largest < vocab_size) return;
  int64_t position = begin;
  while (file[position] < vocab_size)
    ++position;
  throw Error(fmt::format(
      "{}: token {} at position {} (byte {}): expected ids below the vocabulary size {}",
      file.path(), file[position], position,
      TokenShard::kHeaderBytes + position * TokenSize(file.type()), vocab_size));
}

BatchOrder::BatchOrder(const TokenDataset& dataset, const BatchGeometry& geometry, bool shuffle,
                       uint64_t seed)
    : geometry_(geometry), shuffle_(shuffle), seed_(seed) {
  geometry_.Check();
  const int64_t unit = shuffle ? geometry.sequence_length : geometry.tokens_per_step();
  int64_t total = 0;
  for (const TokenShard& shard : dataset.shards()) {
    first_of_shard_.push_back(total);
    total += std::max<int64_t>(shard.size() - 1, 0) / unit;
  }
  first_of_shard_.push_back(total);
  steps_per_epoch_ = shuffle ? total / geometry.sequences_per_step() : total;
  if (steps_per_epoch_ == 0) ThrowTooShort(dataset, geometry, shuffle);
}

WindowPosition BatchOrder::operator()(int64_t epoch, int64_t step, int64_t row) const {
  const int64_t sequence = geometry_.rank * geometry_.batch_size + row;
  int64_t index = step;
  if (shuffle_) {
    const Permutation permutation(static_cast<uint64_t>(first_of_shard_.back()),
                                  seed_ + static_cast<uint64_t>(epoch));
    index = static_cast<int64_t>(
        permutation(static_cast<uint64_t>(step * geometry_.sequences_per_step() + sequence)));
  }
  const auto next = std::upper_bound(first_of_shard_.begin(), first_of_shard_.end(), index);
  const auto shard = static_cast<size_t>(next - first_of_shard_.begin() - 1);
  const int64_t local = index - first_of_shard_[shard];
  const int64_t begin =
      shuffle_ ? local * geometry_.sequence_length
               : local * geometry_.tokens_per_step() + sequence * geometry_.sequence_length;
  return {shard, begin};
}

}  // namespace infini_train
