#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace infini_train {

/// A stretch of a file that is one document of a corpus.
struct Document {
  size_t file = 0;  ///< in Corpus::files
  size_t begin = 0;
  size_t size = 0;
  bool is_validation = false;
};

/// The documents of files and folders, in order.
struct Corpus {
  std::vector<std::string> files;
  std::vector<Document> documents;
  int64_t num_binary_files = 0;
  int64_t num_bytes = 0;
};

/// Lists `inputs` (see TokenizeOptions) and finds the documents in them. Empty files have none.
/// What lies below `excluded_folder` is left out.
Corpus FindDocuments(const std::vector<std::string>& inputs, const std::string& separator,
                     const std::string& excluded_folder);

/// Marks documents of about `fraction` of all bytes as validation, at least one if the fraction is
/// positive. A corpus of one document is cut in two for it.
void ChooseValidation(Corpus& corpus, double fraction, uint64_t seed);

}  // namespace infini_train
