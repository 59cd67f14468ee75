#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/data/tokenizer.h"

namespace infini_train {

/// What becomes of a record with more tokens than a sequence has.
enum class LongRecords : std::uint8_t { kTruncate, kDrop, kError };
/// "truncate", "drop" or "error". Throws Error naming the flag on anything else.
INFINI_TRAIN_API LongRecords ParseLongRecords(const std::string& text);

struct SampleOptions {
  int64_t sequence_length = 64;  ///< of a sample at most; its last target comes on top
  LongRecords long_records = LongRecords::kTruncate;
  int64_t vocab_size = 0;  ///< ids from here on are an error; 0 accepts every id
  int num_threads = 0;     ///< 0: as many as kernels have
};

/// A text to fine-tune on.
struct Sample {
  std::span<const int32_t> tokens;  ///< at least 2
  int64_t first_target = 1;         ///< tokens from here on count in the loss; at least 1

  int64_t num_inputs() const { return static_cast<int64_t>(tokens.size()) - 1; }
  int64_t num_targets() const { return static_cast<int64_t>(tokens.size()) - first_target; }
};

/// Records of files of JSON lines (see JsonRecord), tokenized and in memory, which takes little
/// more than four bytes for each token.
///
/// A sample is what the tokenizer puts before a text on request (the begin-of-text token of Llama 3
/// and Mixtral; nothing for GPT-2 and Qwen), the text, or the prompt and the completion, each
/// encoded on its own, what the tokenizer puts behind a text, and the first of the tokenizer's
/// eos_ids() unless the sample ends with one of them.
///
/// Safe to read from several threads at once.
class INFINI_TRAIN_API SampleDataset {
 public:
  /// Reads the files that `inputs` name (see FindJsonLines). Throws Error, with file and line, for
  /// a record that is none, and if no sample is left.
  SampleDataset(const Tokenizer& tokenizer, const std::vector<std::string>& inputs,
                const SampleOptions& options);

  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  Sample operator[](int64_t i) const {
    const Place& place = places_[static_cast<size_t>(i)];
    const std::vector<int32_t>& block = blocks_[place.block];
    return {std::span(block).subspan(place.begin, place.count), place.first_target};
  }

  struct Counts {
    int64_t files = 0;
    int64_t records = 0;
    int64_t tokens = 0;     ///< of all samples
    int64_t targets = 0;    ///< that count in the loss
    int64_t empty = 0;      ///< records that were skipped: no text, or no completion
    int64_t truncated = 0;  ///< samples that were cut at the sequence length
    int64_t too_long = 0;   ///< records that were dropped, by choice or since nothing that counts
                            ///< is left of them
  };
  const Counts& counts() const { return counts_; }
  /// Of all samples: equal only for equal ones, as far as 64 bits go.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  struct Place {
    uint32_t block = 0, begin = 0;
    uint32_t count = 0;
    int32_t first_target = 0;
  };
  struct Encoded;
  friend class RecordEncoder;

  void Append(Encoded encoded);

  std::vector<std::vector<int32_t>> blocks_;
  std::vector<Place> places_;
  Counts counts_;
  uint64_t fingerprint_ = 0;
};

}  // namespace infini_train
