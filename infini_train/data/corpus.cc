#include "infini_train/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/corpus_documents.h"
#include "infini_train/data/ordered_workers.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;

// Text that a thread encodes at once.
constexpr size_t kTaskBytes = size_t{1} << 20;

// A part of a document, small enough that a large document keeps all threads busy.
struct Part {
  std::string_view text;
  bool starts_document = false;
  bool is_validation = false;
};

struct Task {
  std::vector<Part> parts;
  std::vector<std::shared_ptr<const MappedFile>> files;  // that the parts lie in
};

struct Encoded {
  int64_t bytes = 0;
  std::vector<int32_t> train;
  std::vector<int32_t> validation;
};

// Cuts a corpus into tasks, in order.
class TaskMaker {
 public:
  TaskMaker(const Corpus& corpus, const Tokenizer& tokenizer)
      : corpus_(corpus), tokenizer_(tokenizer) {}

  std::optional<Task> Next() {
    Task task;
    for (size_t bytes = 0; bytes < kTaskBytes && document_ < corpus_.documents.size();) {
      const Part part = NextPart(task);
      bytes += part.text.size();
      task.parts.push_back(part);
    }
    if (task.parts.empty()) return std::nullopt;
    return task;
  }

 private:
  Part NextPart(Task& task) {
    const Document& document = corpus_.documents[document_];
    Open(document);
    if (task.files.empty() || task.files.back() != file_) task.files.push_back(file_);
    Part part;
    part.starts_document = offset_ == 0;
    part.is_validation = document.is_validation;
    part.text = file_->text().substr(document.begin + offset_, document.size - offset_);
    if (part.text.size() > 2 * kTaskBytes) {
      const size_t cut = tokenizer_.FindCut(part.text, kTaskBytes);
      if (cut != std::string_view::npos) part.text = part.text.substr(0, cut);
    }
    offset_ += part.text.size();
    if (offset_ == document.size) {
      ++document_;
      offset_ = 0;
    }
    return part;
  }

  void Open(const Document& document) {
    const std::string& path = corpus_.files[document.file];
    if (file_ == nullptr || open_file_ != document.file) {
      file_ = std::make_shared<const MappedFile>(path);
      open_file_ = document.file;
    }
    if (document.begin + document.size > file_->text().size()) {
      throw Error(fmt::format("{}: expected at least {} bytes, found {}: the file has changed",
                              path, document.begin + document.size, file_->text().size()));
    }
  }

  const Corpus& corpus_;
  const Tokenizer& tokenizer_;
  size_t document_ = 0;  // the next one
  size_t offset_ = 0;    // in it
  std::shared_ptr<const MappedFile> file_;
  size_t open_file_ = 0;
};

Encoded EncodeTask(const Tokenizer& tokenizer, int32_t delimiter, const Task& task) {
  Encoded encoded;
  for (const Part& part : task.parts) {
    std::vector<int32_t>& ids = part.is_validation ? encoded.validation : encoded.train;
    if (part.starts_document) ids.push_back(delimiter);
    tokenizer.EncodeTo(part.text, ids);
    encoded.bytes += static_cast<int64_t>(part.text.size());
  }
  return encoded;
}

// Token files folder/<kind>_000000.bin, folder/<kind>_000001.bin, ... Files are removed again
// unless Finish() is reached.
class ShardSeries {
 public:
  ShardSeries(std::string folder, std::string kind, TokenType type, int64_t tokens_per_shard)
      : folder_(std::move(folder)),
        kind_(std::move(kind)),
        type_(type),
        tokens_per_shard_(tokens_per_shard) {}

  ~ShardSeries() {
    if (finished_) return;
    std::error_code ignored;
    for (const std::string& file : files_)
      fs::remove(file, ignored);
  }

  ShardSeries(const ShardSeries&) = delete;
  ShardSeries& operator=(const ShardSeries&) = delete;

  void Append(std::span<const int32_t> tokens) {
    while (!tokens.empty()) {
      if (!writer_) {
        writer_.emplace(
            (fs::path(folder_) / fmt::format("{}_{:06}.bin", kind_, files_.size())).string(),
            type_);
      }
      const auto count = static_cast<size_t>(std::min<int64_t>(
          tokens_per_shard_ - writer_->size(), static_cast<int64_t>(tokens.size())));
      writer_->Append(tokens.first(count));
      num_tokens_ += static_cast<int64_t>(count);
      tokens = tokens.subspan(count);
      if (writer_->size() == tokens_per_shard_) CommitShard();
    }
  }

  void CommitShard() {
    if (!writer_) return;
    writer_->Commit();
    files_.push_back(writer_->path());
    writer_.reset();
  }

  void Finish() { finished_ = true; }

  int64_t num_tokens() const { return num_tokens_; }
  const std::vector<std::string>& files() const { return files_; }

 private:
  const std::string folder_;
  const std::string kind_;
  const TokenType type_;
  const int64_t tokens_per_shard_;
  std::optional<TokenShardWriter> writer_;
  std::vector<std::string> files_;
  int64_t num_tokens_ = 0;
  bool finished_ = false;
};

// The token files that a folder holds: train_*.bin and val_*.bin.
std::vector<std::string> TokenFilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const fs::path& path : ListFolder(folder)) {
    const std::string name = path.filename().string();
    if (name.ends_with(".bin") && (name.starts_with("train_") || name.starts_with("val_"))) {
      files.push_back(path.string());
    }
  }
  return files;
}

void Check(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  if (options.output_folder.empty()) throw Error("expected the name of an output folder");
  constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;
  if (options.tokens_per_shard < 1 || options.tokens_per_shard > kMostTokens) {
    throw Error(fmt::format("expected from 1 to {} tokens for each shard, found {}", kMostTokens,
                            options.tokens_per_shard));
  }
  if (options.num_threads < 0) {
    throw Error(fmt::format("num_threads: expected 0 or more, got {}", options.num_threads));
  }
  const auto delimiter =
      options.document_delimiter ? options.document_delimiter : tokenizer.document_delimiter();
  if (!delimiter) {
    throw Error(
        fmt::format("{}: expected a token that ends a text (eos_token of a "
                    "tokenizer_config.json beside it) to put between documents, found none",
                    tokenizer.name()));
  }
  if (*delimiter < 0 || *delimiter >= tokenizer.vocab_size()) {
    throw Error(fmt::format("expected a document delimiter from 0 to {}, found {}",
                            tokenizer.vocab_size() - 1, *delimiter));
  }
  const TokenType needed = TokenTypeFor(tokenizer.vocab_size());
  if (needed == TokenType::kUint32 && options.token_type == TokenType::kUint16) {
    throw Error(
        fmt::format("{}: expected a vocabulary of at most 65536 for uint16 tokens, found {}",
                    tokenizer.name(), tokenizer.vocab_size()));
  }
}

}  // namespace

TokenizeResult TokenizeCorpus(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  Check(tokenizer, options);
  const std::vector<std::string> old_files = TokenFilesIn(options.output_folder);
  if (!old_files.empty() && !options.overwrite) {
    throw Error(fmt::format("{}: expected no token files, found {}, of which one is {}",
                            options.output_folder, old_files.size(),
                            fs::path(old_files.front()).filename().string()));
  }
  Corpus corpus = FindDocuments(options.inputs, options.document_separator, options.output_folder);
  ChooseValidation(corpus, options.validation_fraction, options.seed);

  CreateFolder(options.output_folder);
  tokenizer.Save(options.output_folder);

  TokenizeResult result;
  result.token_type = options.token_type.value_or(TokenTypeFor(tokenizer.vocab_size()));
  ShardSeries train(options.output_folder, "train", result.token_type, options.tokens_per_shard);
  ShardSeries validation(options.output_folder, "val", result.token_type, options.tokens_per_shard);
  const int32_t delimiter =
      options.document_delimiter ? *options.document_delimiter : *tokenizer.document_delimiter();
  TokenizeProgress progress;
  progress.total_bytes = corpus.num_bytes;
  TaskMaker tasks(corpus, tokenizer);
  OrderedWorkers<Task, Encoded> encoder(
      [&] { return tasks.Next(); },
      [&](const Task& task) { return EncodeTask(tokenizer, delimiter, task); },
      options.num_threads);
  while (const std::optional<Encoded> encoded = encoder.Next()) {
    train.Append(encoded->train);
    validation.Append(encoded->validation);
    progress.bytes += encoded->bytes;
    progress.tokens = train.num_tokens() + validation.num_tokens();
    if (options.progress) options.progress(progress);
  }
  train.CommitShard();
  validation.CommitShard();
  train.Finish();
  validation.Finish();

  result.num_files = static_cast<int64_t>(corpus.files.size());
  result.num_binary_files = corpus.num_binary_files;
  result.num_documents = static_cast<int64_t>(corpus.documents.size());
  result.num_validation_documents =
      std::count_if(corpus.documents.begin(), corpus.documents.end(),
                    [](const Document& document) { return document.is_validation; });
  result.num_bytes = corpus.num_bytes;
  result.num_train_tokens = train.num_tokens();
  result.num_validation_tokens = validation.num_tokens();
  result.train_files = train.files();
  result.validation_files = validation.files();
  std::error_code ignored;
  for (const std::string& file : old_files) {
    const auto is_new = [&file](const std::vector<std::string>& files) {
      return std::find(files.begin(), files.end(), file) != files.end();
    };
    if (!is_new(result.train_files) && !is_new(result.validation_files)) fs::remove(file, ignored);
  }
  return result;
}

}  // namespace infini_train
