#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/data/token_shard.h"
#include "infini_train/data/tokenizer.h"

namespace infini_train {

struct TokenizeProgress {
  int64_t bytes = 0;        ///< of text encoded and written
  int64_t total_bytes = 0;  ///< of text in all
  int64_t tokens = 0;       ///< written
};

struct TokenizeOptions {
  /// Files, and folders that are searched with what is below them, in the order of names. Hidden
  /// entries of folders and what lies in the output folder are left out.
  std::vector<std::string> inputs;
  /// Created if it does not exist.
  std::string output_folder;
  /// Ends a document inside a file and stays with it (llm.c cuts Shakespeare at "\n\n"). Empty:
  /// each file is one document.
  std::string document_separator;
  /// Share of the text, by bytes, that is kept for validation, in [0, 1). Whole documents are
  /// chosen at random; a corpus of a single document gives its end, from a line on.
  double validation_fraction = 0.05;
  uint64_t seed = 0;  ///< of the choice of validation documents
  /// Tokens of a shard; the last of each kind is shorter.
  int64_t tokens_per_shard = 100'000'000;
  /// Goes before every document; by default the tokenizer's document_delimiter().
  std::optional<int32_t> document_delimiter;
  /// How a token is stored; by default the smallest type that holds the vocabulary.
  std::optional<TokenType> token_type;
  int num_threads = 0;     ///< that encode; 0 for as many as kernels have
  bool overwrite = false;  ///< replace the token files that the folder holds
  /// Called on the calling thread from time to time.
  std::function<void(const TokenizeProgress&)> progress;
};

struct TokenizeResult {
  int64_t num_files = 0;         ///< that were encoded
  int64_t num_binary_files = 0;  ///< that were skipped because they hold a zero byte
  int64_t num_documents = 0;     ///< of both kinds
  int64_t num_validation_documents = 0;
  int64_t num_bytes = 0;
  int64_t num_train_tokens = 0;
  int64_t num_validation_tokens = 0;
  TokenType token_type = TokenType::kUint16;
  std::vector<std::string> train_files;       ///< output_folder/train_000000.bin, ...
  std::vector<std::string> validation_files;  ///< output_folder/val_000000.bin, ...
};

/// Turns text into token shards (see TokenShard) and puts the tokenizer beside them, so that the
/// folder is all that training needs. Documents keep their order; the result does not depend on the
/// number of threads. Throws Error, before anything is written, if an input is missing or holds no
/// text, or if the folder holds token files already; a failure later leaves no token file behind.
INFINI_TRAIN_API TokenizeResult TokenizeCorpus(const Tokenizer& tokenizer,
                                               const TokenizeOptions& options);

}  // namespace infini_train
