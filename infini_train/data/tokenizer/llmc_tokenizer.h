#pragma once

#include <memory>
#include <string>

#include "infini_train/data/tokenizer.h"

namespace infini_train {

/// Whether a file starts like llm.c's tokenizer.bin. False for files that cannot be read.
bool IsLlmcTokenizer(const std::string& path);

/// Reads llm.c's tokenizer.bin: 256 int32 (magic 20240328 for GPT-2, 20240801 for Llama 3; version
/// 1 or 2; vocabulary size; end-of-text id in version 2), then a length byte and the bytes of each
/// token. The file holds no merges; they follow from the tokens, whose ids are in order of merging.
/// Throws Error for a file that is damaged.
std::shared_ptr<const Tokenizer> LoadLlmcTokenizer(const std::string& path);

}  // namespace infini_train
