// Any bytes are llm.c's vocabulary of a tokenizer that takes texts, or are refused.

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/tokenizer/llmc_tokenizer.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace infini_train;
  const test::MemoryFile file(data, size);
  try {
    const auto tokenizer = LoadLlmcTokenizer(file.path());
    const std::vector<int32_t> ids = tokenizer->Encode("ab abc  it's 12\n\n\u00e9");
    tokenizer->Decode(ids);
  } catch (const Error&) {
  }
  return 0;
}
