#include <fmt/format.h>

#include "infini_train/core/error.h"
#include "infini_train/data/corpus.h"
#include "infini_train/data/tokenizer.h"
#include "infini_train/trainer/commands.h"
#include "infini_train/trainer/progress.h"

namespace infini_train::trainer {

void TokenizeCommand(const TokenizeCommandOptions& options, std::FILE* out) {
  if (options.corpus.inputs.empty()) throw Error("expected files or folders to tokenize, got none");
  if (options.corpus.output_folder.empty()) throw Error("output: expected a folder, got none");
  const auto tokenizer = LoadTokenizer(options.tokenizer);
  ProgressPrinter printer(out);
  TokenizeOptions corpus = options.corpus;
  corpus.progress = [&](const TokenizeProgress& progress) {
    constexpr double kMegabyte = 1e6;
    printer.Transient(fmt::format(
        "{:.1f} of {:.1f} MB, {} tokens", static_cast<double>(progress.bytes) / kMegabyte,
        static_cast<double>(progress.total_bytes) / kMegabyte, progress.tokens));
  };
  const TokenizeResult result = TokenizeCorpus(*tokenizer, corpus);
  printer.Line(fmt::format(
      "{}, {}, {}{}", FormatCount(result.num_files, "file"),
      FormatCount(result.num_documents, "document"), FormatCount(result.num_bytes, "byte"),
      result.num_binary_files > 0
          ? fmt::format(" ({} skipped)", FormatCount(result.num_binary_files, "binary file"))
          : ""));
  const auto describe = [&](const char* what, std::int64_t tokens,
                            const std::vector<std::string>& files) {
    if (files.empty()) return;
    printer.Line(fmt::format("{}: {} tokens in {}{}", what, tokens, files.front(),
                             files.size() > 1 ? fmt::format(" to {}", files.back()) : ""));
  };
  describe("training", result.num_train_tokens, result.train_files);
  describe("validation", result.num_validation_tokens, result.validation_files);
}

}  // namespace infini_train::trainer
