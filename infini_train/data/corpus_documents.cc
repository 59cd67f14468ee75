#include "infini_train/data/corpus_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/input_files.h"
#include "infini_train/data/permutation.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;

void AddDocuments(std::string_view text, size_t file, const std::string& separator,
                  Corpus& corpus) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.size();
    if (!separator.empty()) {
      const size_t found = text.find(separator, begin);
      if (found != std::string_view::npos) end = found + separator.size();
    }
    corpus.documents.push_back({file, begin, end - begin});
    begin = end;
  }
}

// Where to cut a text for its last `fraction`: after a line end, or else before a character.
size_t CutForValidation(std::string_view text, double fraction) {
  auto cut = static_cast<size_t>(static_cast<double>(text.size()) * (1 - fraction));
  const size_t line_end = text.find('\n', cut);
  if (line_end != std::string_view::npos && line_end + 1 < text.size()) return line_end + 1;
  const size_t earlier = cut == 0 ? std::string_view::npos : text.rfind('\n', cut - 1);
  if (earlier != std::string_view::npos) return earlier + 1;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80)
    --cut;
  return cut;
}

}  // namespace

Corpus FindDocuments(const std::vector<std::string>& inputs, const std::string& separator,
                     const std::string& excluded_folder) {
  if (inputs.empty()) throw Error("expected files or folders to tokenize, found none");
  const fs::path excluded =
      excluded_folder.empty() ? fs::path() : fs::weakly_canonical(excluded_folder);
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (IsFolder(input)) {
      const std::vector<std::string> below = FilesBelow(input, excluded);
      files.insert(files.end(), below.begin(), below.end());
    } else {
      files.push_back(input);
    }
  }
  Corpus corpus;
  for (const std::string& file : files) {
    const MappedFile mapped(file);
    const std::string_view text = mapped.text();
    if (text.find('\0') != std::string_view::npos) {
      ++corpus.num_binary_files;
      continue;
    }
    AddDocuments(text, corpus.files.size(), separator, corpus);
    corpus.files.push_back(file);
    corpus.num_bytes += static_cast<int64_t>(text.size());
  }
  if (corpus.documents.empty()) {
    throw Error(fmt::format("{}{}: expected text, found {} files without any ({} of them binary)",
                            inputs.front(), inputs.size() > 1 ? " and others" : "", files.size(),
                            corpus.num_binary_files));
  }
  return corpus;
}

void ChooseValidation(Corpus& corpus, double fraction, uint64_t seed) {
  if (!(fraction >= 0 && fraction < 1)) {
    throw Error(fmt::format(
        "expected a validation fraction from 0 up to, not including, 1, found {}", fraction));
  }
  if (fraction == 0) return;
  std::vector<Document>& documents = corpus.documents;
  if (documents.size() == 1) {
    const Document whole = documents.front();
    const MappedFile file(corpus.files[whole.file]);
    const size_t cut = CutForValidation(file.text().substr(whole.begin, whole.size), fraction);
    if (cut == 0 || cut >= whole.size) return;
    documents = {{whole.file, whole.begin, cut, /*is_validation=*/false},
                 {whole.file, whole.begin + cut, whole.size - cut, /*is_validation=*/true}};
    return;
  }
  const double wanted = static_cast<double>(corpus.num_bytes) * fraction;
  double chosen = 0;
  const Permutation order(documents.size(), seed);
  for (uint64_t i = 0; i < documents.size(); ++i) {
    Document& document = documents[order(i)];
    const double with = chosen + static_cast<double>(document.size);
    if (with > wanted) continue;
    document.is_validation = true;
    chosen = with;
  }
  if (chosen > 0) return;
  std::min_element(documents.begin(), documents.end(), [](const Document& a, const Document& b) {
    return a.size < b.size;
  })->is_validation = true;
}

}  // namespace infini_train
