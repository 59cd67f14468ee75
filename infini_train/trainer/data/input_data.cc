#include "infini_train/trainer/data/input_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/shard_batches.h"
#include "infini_train/trainer/progress.h"

namespace infini_train::trainer {
namespace {

std::int64_t LongestOf(const SampleDataset& samples) {
  std::int64_t longest = 1;
  for (std::int64_t i = 0; i < samples.size(); ++i)
    longest = std::max(longest, samples[i].num_inputs());
  return longest;
}

}  // namespace

void CheckInputData(const InputDataOptions& o) {
  if (!o.bin.empty() && !o.jsonl.empty()) {
    throw Error(fmt::format("{}: expected no {} beside it", o.jsonl_flag, o.bin_flag));
  }
  if (o.bin.empty() && o.jsonl.empty()) {
    throw Error(fmt::format("{}: expected token files (or JSON lines: {}), got none", o.bin_flag,
                            o.jsonl_flag));
  }
  if (o.packing && o.jsonl.empty()) {
    throw Error(fmt::format("packing: expected JSON lines ({}), got token files", o.jsonl_flag));
  }
  ParseLongRecords(o.long_records);
}

InputData::InputData(const InputDataOptions& o, const Tokenizer* tokenizer)
    : sequence_length_(o.sequence_length),
      most_tokens_(o.sequence_length + 1),
      vocab_size_(o.vocab_size) {
  CheckInputData(o);
  if (o.jsonl.empty()) {
    first_input_ = o.bin.front();
    tokens_ = std::make_shared<const TokenDataset>(o.bin);
    return;
  }
  if (tokenizer == nullptr) {
    throw Error(fmt::format(
        "{}: expected a tokenizer (--tokenizer, or beside the data or the model), found none",
        o.jsonl_flag));
  }
  first_input_ = o.jsonl.front();
  auto samples = std::make_shared<const SampleDataset>(
      *tokenizer, o.jsonl,
      SampleOptions{sequence_length_, ParseLongRecords(o.long_records), o.vocab_size,
                    static_cast<int>(std::min<std::int64_t>(o.num_threads, 1024))});
  if (o.shortest_rows) sequence_length_ = LongestOf(*samples);
  samples_ = std::make_shared<const SampleRows>(std::move(samples), sequence_length_, o.packing);
}

std::shared_ptr<const BatchSource> InputData::TrainingBatches(const BatchGeometry& geometry,
                                                              std::int64_t accumulation_steps,
                                                              bool shuffle,
                                                              std::uint64_t seed) const {
  if (samples_ != nullptr) {
    return std::make_shared<const SampleBatches>(
        samples_, SampleBatchOptions{geometry.batch_size, geometry.rank, geometry.world_size,
                                     accumulation_steps, shuffle, seed});
  }
  return std::make_shared<const ShardBatches>(
      tokens_, ShardBatchOptions{geometry, shuffle, seed, vocab_size_});
}

std::shared_ptr<const BatchSource> InputData::Coverage(BatchGeometry geometry) const {
  if (samples_ != nullptr)
    return TrainingBatches(geometry, /*accumulation_steps=*/1, /*shuffle=*/false, 0);
  geometry.sequence_length = sequence_length_;
  return std::make_shared<const ShardCoverage>(tokens_, geometry, vocab_size_);
}

std::string InputData::Describe(const std::string& kind) const {
  if (samples_ == nullptr) {
    return fmt::format("{} {} tokens in {}", tokens_->num_tokens(), kind,
                       FormatCount(std::ssize(tokens_->shards()), "file"));
  }
  const SampleDataset& samples = samples_->dataset();
  const std::int64_t rows = samples_->rows().size();
  const std::int64_t inputs = samples.counts().tokens - samples.size();
  const double full =
      100.0 * static_cast<double>(inputs) / static_cast<double>(rows * sequence_length_);
  return fmt::format("{} {} tokens in {} of {}, {} ({:.1f} % full)", samples.counts().tokens, kind,
                     FormatCount(samples.size(), "sample"),
                     FormatCount(samples.counts().files, "file"),
                     FormatCount(rows, samples_->packing() ? "packed sequence" : "sequence"), full);
}

std::string InputData::Warning() const {
  if (samples_ == nullptr) return {};
  const SampleDataset::Counts& counts = samples_->dataset().counts();
  std::string text;
  const auto add = [&text](std::int64_t count, std::string_view what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(counts.empty, "skipped without text or completion");
  add(counts.truncated, fmt::format("cut at {} tokens", most_tokens_));
  add(counts.too_long, fmt::format("left out for more than {} tokens", most_tokens_));
  return text.empty() ? text
                      : fmt::format("{}: of {} {}", first_input_,
                                    FormatCount(counts.records, "record"), text);
}

std::vector<std::string> FoldersOf(const std::vector<std::string>& inputs) {
  std::vector<std::string> folders;
  for (const std::string& input : inputs) {
    folders.push_back(IsFolder(input) ? input
                                      : std::filesystem::path(input).parent_path().string());
  }
  return folders;
}

}  // namespace infini_train::trainer
