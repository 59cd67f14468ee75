#include "infini_train/data/samples/sample_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/ordered_workers.h"
#include "infini_train/data/samples/json_lines.h"

namespace infini_train {
namespace {

// Text of lines that a thread encodes at once.
constexpr size_t kTaskBytes = size_t{1} << 19;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Whole lines of a file.
struct Lines {
  std::shared_ptr<const MappedFile> file;
  std::string_view text;
  int64_t first_line = 1;
};

class LineReader {
 public:
  explicit LineReader(std::vector<std::string> files) : files_(std::move(files)) {}

  std::optional<Lines> Next() {
    while (rest_.empty()) {
      if (next_ == files_.size()) return std::nullopt;
      file_ = std::make_shared<const MappedFile>(files_[next_++]);
      rest_ = file_->text();
      if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
      line_ = 1;
    }
    const size_t end = rest_.find('\n', std::min(kTaskBytes, rest_.size() - 1));
    const std::string_view text = rest_.substr(0, end == std::string_view::npos ? end : end + 1);
    const Lines lines{file_, text, line_};
    line_ += std::count(text.begin(), text.end(), '\n');
    rest_.remove_prefix(text.size());
    return lines;
  }

 private:
  const std::vector<std::string> files_;
  size_t next_ = 0;
  std::shared_ptr<const MappedFile> file_;
  std::string_view rest_;
  int64_t line_ = 1;
};

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

}  // namespace

LongRecords ParseLongRecords(const std::string& text) {
  if (text == "truncate") return LongRecords::kTruncate;
  if (text == "drop") return LongRecords::kDrop;
  if (text == "error") return LongRecords::kError;
  throw Error(fmt::format("long_records: expected truncate, drop or error, got {}", text));
}

struct SampleDataset::Encoded {
  std::vector<int32_t> tokens;
  std::vector<Place> places;
  Counts counts;
};

class RecordEncoder {
 public:
  RecordEncoder(const Tokenizer& tokenizer, const SampleOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  SampleDataset::Encoded operator()(const Lines& lines) const {
    SampleDataset::Encoded encoded;
    std::string_view rest = lines.text;
    for (int64_t line = lines.first_line; !rest.empty(); ++line) {
      const std::string_view text = rest.substr(0, rest.find('\n'));
      try {
        if (const auto record = ParseJsonRecord(text)) Encode(*record, encoded);
      } catch (const Error& error) {
        throw Error(fmt::format("{}:{}: {}", lines.file->path(), line, error.what()));
      }
      rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    }
    encoded.tokens.shrink_to_fit();
    return encoded;
  }

 private:
  void Encode(const JsonRecord& record, SampleDataset::Encoded& encoded) const {
    ++encoded.counts.records;
    if (record.text.empty()) {
      ++encoded.counts.empty;
      return;
    }
    std::vector<int32_t>& ids = encoded.tokens;
    const size_t begin = ids.size();
    const auto append = [&ids](std::span<const int32_t> more) {
      ids.insert(ids.end(), more.begin(), more.end());
    };
    append(tokenizer_.before_text());
    size_t first_target = begin;
    if (record.has_prompt) {
      tokenizer_.EncodeTo(record.prompt, ids);
      first_target = ids.size();
      tokenizer_.EncodeContinuationTo(record.text, ids);
    } else {
      tokenizer_.EncodeTo(record.text, ids);
    }
    append(tokenizer_.after_text());
    const std::vector<int32_t>& ends = tokenizer_.eos_ids();
    if (!ends.empty() && std::find(ends.begin(), ends.end(), ids.back()) == ends.end())
      ids.push_back(ends.front());
    Keep(begin, std::max(first_target, begin + 1) - begin, encoded);
  }

  // Makes what is behind `begin` a sample, or takes it away again.
  void Keep(size_t begin, size_t first_target, SampleDataset::Encoded& encoded) const {
    std::vector<int32_t>& ids = encoded.tokens;
    CheckVocabulary(std::span(ids).subspan(begin));
    const auto most = static_cast<size_t>(options_.sequence_length) + 1;
    size_t count = ids.size() - begin;
    const bool is_long = count > most;
    if (is_long && options_.long_records == LongRecords::kError) {
      throw Error(
          fmt::format("expected at most {} tokens (sequence_length and one more), found {}; "
                      "--long_records truncate cuts such records, drop leaves them out",
                      most, count));
    }
    if (is_long) count = options_.long_records == LongRecords::kDrop ? 0 : most;
    if (first_target >= count) {
      ids.resize(begin);
      ++(is_long ? encoded.counts.too_long : encoded.counts.empty);
      return;
    }
    ids.resize(begin + count);
    if (is_long) ++encoded.counts.truncated;
    encoded.counts.tokens += static_cast<int64_t>(count);
    encoded.counts.targets += static_cast<int64_t>(count - first_target);
    encoded.places.push_back({0, static_cast<uint32_t>(begin), static_cast<uint32_t>(count),
                              static_cast<int32_t>(first_target)});
  }

  void CheckVocabulary(std::span<const int32_t> ids) const {
    if (options_.vocab_size == 0) return;
    for (const int32_t id : ids) {
      if (id >= options_.vocab_size) {
        throw Error(fmt::format(
            "token {} is not below the model's vocabulary of {}; is this its tokenizer ({})?", id,
            options_.vocab_size, tokenizer_.name()));
      }
    }
  }

  const Tokenizer& tokenizer_;
  const SampleOptions& options_;
};

SampleDataset::SampleDataset(const Tokenizer& tokenizer, const std::vector<std::string>& inputs,
                             const SampleOptions& options) {
  if (options.sequence_length < 1) {
    throw Error(
        fmt::format("expected a sequence length of 1 or more, found {}", options.sequence_length));
  }
  if (options.num_threads < 0) {
    throw Error(fmt::format("num_threads: expected 0 or more, got {}", options.num_threads));
  }
  std::vector<std::string> files = FindJsonLines(inputs);
  counts_.files = static_cast<int64_t>(files.size());
  const std::string first_file = files.empty() ? std::string("no file") : files.front();
  LineReader reader(std::move(files));
  const RecordEncoder encode(tokenizer, options);
  OrderedWorkers<Lines, Encoded> workers([&] { return reader.Next(); }, encode,
                                         options.num_threads);
  while (std::optional<Encoded> encoded = workers.Next())
    Append(*std::move(encoded));
  places_.shrink_to_fit();
  if (places_.empty()) {
    throw Error(fmt::format(
        "{}: expected a record with text to train on, found none in {} records ({} without text or "
        "completion, {} too long)",
        first_file, counts_.records, counts_.empty, counts_.too_long));
  }
}

void SampleDataset::Append(Encoded encoded) {
  for (Place place : encoded.places) {
    place.block = static_cast<uint32_t>(blocks_.size());
    places_.push_back(place);
    fingerprint_ = Mix(Mix(fingerprint_, place.count), static_cast<uint64_t>(place.first_target));
  }
  for (const int32_t id : encoded.tokens)
    fingerprint_ = Mix(fingerprint_, static_cast<uint64_t>(id));
  const Counts& counts = encoded.counts;
  counts_.records += counts.records;
  counts_.tokens += counts.tokens;
  counts_.targets += counts.targets;
  counts_.empty += counts.empty;
  counts_.truncated += counts.truncated;
  counts_.too_long += counts.too_long;
  if (!encoded.tokens.empty()) blocks_.push_back(std::move(encoded.tokens));
}

}  // namespace infini_train
